"""Jackfield's provider for every OpenAI-compatible endpoint: OpenAI, Ollama, vLLM, OpenRouter."""
