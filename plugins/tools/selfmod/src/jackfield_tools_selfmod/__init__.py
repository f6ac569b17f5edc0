"""The tools by which an agent asks for more: packages, MCP servers, a rebuild.  A person decides."""
