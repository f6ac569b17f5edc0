"""The provider keeps the contract of providers, with the real package and a played model."""

from __future__ import annotations

from jackfield.testing import ProviderContract, Stage
from jackfield_provider_kit.stage import PlayedStage


class Staged(PlayedStage, Stage):
    """A model on 127.0.0.1."""


class TestOpenAI(ProviderContract):
    plugin = "openai"

    def make_stage(self) -> Stage:
        return Staged("/v1")
