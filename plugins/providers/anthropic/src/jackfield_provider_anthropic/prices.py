"""List prices of Anthropic's own server, US dollars a million tokens, as published in October 2026.

A model whose price depends on the prompt's length (claude-haiku-5-5) is left out: its cost is told as unknown.
"""

from __future__ import annotations

from jackfield_provider_kit.loop.setup import Prices

__all__ = ["list_price"]

_LIST = {
    "claude-fable-5-1": Prices(10.0, 50.0, 0.25, 12.5),
    "claude-fable-5": Prices(10.0, 50.0, 1.0, 12.5),
    "claude-opus-5-5": Prices(4.0, 20.0, 0.2, 5.0),
    "claude-opus-5": Prices(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-8": Prices(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-7": Prices(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-6": Prices(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-5": Prices(5.0, 25.0, 0.5, 6.25),
    "claude-sonnet-5-5": Prices(2.0, 10.0, 0.1, 2.5),
    "claude-sonnet-5": Prices(2.0, 10.0, 0.2, 2.5),
    "claude-sonnet-4-6": Prices(3.0, 15.0, 0.3, 3.75),
    "claude-sonnet-4-5": Prices(3.0, 15.0, 0.3, 3.75),
    "claude-haiku-4-5": Prices(1.0, 5.0, 0.1, 1.25),
}


def list_price(model: str) -> Prices | None:
    """The price of a model by its name, with or without a date; None when it is not known."""
    name, _, date = model.rpartition("-")
    plain = name if len(date) == 8 and date.isdigit() else model
    return _LIST.get(plain)
