"""What is installed for an agent group besides what its runtime has, and its MCP servers."""
