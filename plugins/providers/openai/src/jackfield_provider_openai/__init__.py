"""Jackfield's provider for every OpenAI-compatible endpoint: OpenAI, Ollama, vLLM, OpenRouter."""

__version__ = "0.1.0"
