"""The pytest plugin: `pytest -p jackfield.testing.pytest`.

Fixtures for authors' own tests, the option `--plugin NAME` for `--pyargs jackfield.testing.contracts`, and for each
failed check of a contract its promise in words.
"""

from __future__ import annotations

import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from jackfield.config import Home
from jackfield.mailbox import SessionFolder
from jackfield.testing.clock import ManualClock
from jackfield.testing.distributions import Site
from jackfield.testing.host_recorder import HostRecorder
from jackfield.testing.recorders import ChannelRecorder, ToolRecorder
from jackfield.testing.sessions import make_session, place_of

__all__ = ["chosen_plugins"]

_DOCS = "docs/plugins/testing.md"
_chosen: list[str] = []


def chosen_plugins() -> list[str]:
    """The names given with `--plugin`."""
    return list(_chosen)


# ---- hooks


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("jackfield", "Jackfield plugins")
    group.addoption(
        "--plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="with --pyargs jackfield.testing.contracts: an installed plugin to test; may be given several times",
    )


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    _chosen[:] = config.getoption("--plugin")
    if _chosen:
        # Advice of pytest-asyncio for a project's own fixtures.  Ours name their scope, and nobody else's are run.
        unset = 'The configuration option "asyncio_default_fixture_loop_scope" is unset'
        warnings.filterwarnings("ignore", unset, pytest.PytestDeprecationWarning)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    known = vars(getattr(item, "function", type)) if hasattr(item, "function") else {}
    if report.failed and "contract_id" in known:
        report.sections.append((f"contract {known['contract_id']}", f"{known['contract_text']}\nSee {_DOCS}."))
    return report


# ---- fixtures


@pytest.fixture
def manual_clock() -> ManualClock:
    """A clock that stands still until the test moves it."""
    return ManualClock()


@pytest.fixture
def jackfield_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home with its folders, which commands find by `$JACKFIELD_HOME`."""
    home = Home(tmp_path / "jackfield")
    home.create()
    home.jackfield_toml.touch()
    monkeypatch.setenv("JACKFIELD_HOME", str(home.root))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return home


@pytest.fixture
def session_folder(jackfield_home: Home) -> SessionFolder:
    """A session's mailbox as a host leaves it for a runner."""
    place = place_of(jackfield_home.root)
    make_session(place)
    return SessionFolder(place.folder)


@pytest_asyncio.fixture(loop_scope="function")
async def make_channel_context(tmp_path: Path) -> AsyncIterator[Callable[..., ChannelRecorder]]:
    """Makes `ChannelRecorder`s: `make_channel_context("carrier", "main", secrets={...})`."""
    made: list[ChannelRecorder] = []

    def make(channel_type: str, instance: str | None = None, **more: Any) -> ChannelRecorder:
        name = instance or channel_type
        made.append(ChannelRecorder(channel_type, name, tmp_path / "channels" / name, **more))
        return made[-1]

    yield make
    for context in made:
        await context.close()


@pytest.fixture
def tool_context(tmp_path: Path) -> ToolRecorder:
    """A session's side for tools, which takes notes."""
    return ToolRecorder(tmp_path / "workspace")


@pytest.fixture
def host_context(manual_clock: ManualClock) -> HostRecorder:
    """A host's services for extensions, which take notes; on the test's clock."""
    return HostRecorder(clock=manual_clock)


@pytest.fixture
def plugin_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A place to install distributions into, for the time of the test."""
    with Site(tmp_path_factory.mktemp("site")) as site:
        yield site
