"""The slack channel: `type = "slack"`."""
