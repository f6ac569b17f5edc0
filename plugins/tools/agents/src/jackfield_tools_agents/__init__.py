"""The tools with which an agent creates other agents, and sees whom it can ask."""
