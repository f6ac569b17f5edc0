"""One suite of checks for each kind of plugin.

Subclass the one of your plugin's kind, or name an installed plugin: `pytest -p jackfield.testing.pytest --pyargs
jackfield.testing.contracts --plugin NAME`.  Each check has an id (`TOOL-05`) that stays its own;
`docs/plugins/testing.md` lists them.
"""

from __future__ import annotations

import pytest

# Their assertions explain themselves only when pytest rewrites them, which it does on its own for test files alone.
pytest.register_assert_rewrite(
    *(
        f"{__name__}.{module}"
        for module in (
            "channel", "channel_intake", "channel_life", "channel_sending", "checks", "extension", "pack", "plugin",
            "provider", "provider_life", "provider_turns", "runtime", "runtime_life", "tools",
        )
    )
)  # fmt: skip

from jackfield.plugins.kinds import Kind  # noqa: E402
from jackfield.testing.contracts.channel_life import ChannelContract  # noqa: E402
from jackfield.testing.contracts.checks import Check, checks_of  # noqa: E402
from jackfield.testing.contracts.extension import ExtensionContract  # noqa: E402
from jackfield.testing.contracts.pack import PackContract  # noqa: E402
from jackfield.testing.contracts.peer import Arrived, FailureKind, Peer, Said  # noqa: E402
from jackfield.testing.contracts.plugin import PluginContract  # noqa: E402
from jackfield.testing.contracts.provider_life import ProviderContract  # noqa: E402
from jackfield.testing.contracts.runtime_life import RuntimeContract  # noqa: E402
from jackfield.testing.contracts.stage import Stage  # noqa: E402
from jackfield.testing.contracts.tools import ToolsContract  # noqa: E402

__all__ = [
    "CONTRACTS",
    "Arrived",
    "ChannelContract",
    "Check",
    "ExtensionContract",
    "FailureKind",
    "PackContract",
    "Peer",
    "PluginContract",
    "ProviderContract",
    "RuntimeContract",
    "Said",
    "Stage",
    "ToolsContract",
    "checks_of",
]

CONTRACTS: dict[Kind, type[PluginContract]] = {
    Kind.CHANNEL: ChannelContract,
    Kind.PROVIDER: ProviderContract,
    Kind.RUNTIME: RuntimeContract,
    Kind.TOOLS: ToolsContract,
    Kind.PACK: PackContract,
    Kind.EXTENSION: ExtensionContract,
}
"""The suite of each kind."""
