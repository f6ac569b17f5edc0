"""One listener for each credential."""

from __future__ import annotations

import gc

import pytest
from jackfield.errors import ConfigError
from jackfield_channel_kit.claims import claim


def test_a_credential_has_one_listener_at_a_time() -> None:
    """C236: also after one that was dropped without a word; the credential is in no error."""
    first = claim("demo", "one", "t0ken", fix="get another")
    with pytest.raises(ConfigError, match="channel one runs") as caught:
        claim("demo", "two", "t0ken", fix="get another")
    assert caught.value.fix == "get another" and "t0ken" not in str(caught.value)
    others = claim("demo", "three", "other", fix=""), claim("else", "four", "t0ken", fix="")
    first.release()
    second = claim("demo", "two", "t0ken", fix="")
    first.release()
    with pytest.raises(ConfigError):
        claim("demo", "one", "t0ken", fix="")
    del second, others
    gc.collect()
    assert claim("demo", "one", "t0ken", fix="").instance == "one"
