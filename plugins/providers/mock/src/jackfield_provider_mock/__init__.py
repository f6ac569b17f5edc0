"""An agent provider without a model: scripted, deterministic, able to fail in every way that a real engine can."""

__version__ = "0.1.0"
