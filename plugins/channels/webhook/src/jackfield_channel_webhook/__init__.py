"""The webhook channel: `type = "webhook"`."""
