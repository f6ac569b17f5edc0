"""Where everything of one installation lies.  Imports only the standard library, so any command may use it at once.

::

    <home>/                     0700
      jackfield.toml            the one configuration file
      master.key                what the secrets in the store are sealed with; made with the first one
      state.db                  the host's store
      host.sock, host.lock      the control socket, and the lock of the one host
      groups/<folder>/          one agent group: AGENTS.md, agent.toml, memory/, skills/, packages/, workspace/
      sessions/<ag_>/<ses_>/    the mailboxes
      plugins/                  what is known about plugins
      logs/, backups/
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from jackfield.errors import ConfigError, NotInitialised
from jackfield.plugins.files import user_folder

__all__ = ["Home"]


class Home(NamedTuple):  # no dataclass: importing those costs 20 ms, and the quickest commands need their home
    """The paths of one installation.  `root` is absolute; nothing is touched by making this object."""

    root: Path

    @classmethod
    def find(cls, explicit: str | None = None) -> Home:
        """The home that a command means: what was given, else ``$JACKFIELD_HOME``, else ``~/.jackfield``.

        The place need not exist.  Links are not resolved, so the operator sees the path they wrote.

        Raises:
            ConfigError: it is meant to lie in a user's own folder, and nothing says where that is.
        """
        chosen = explicit or os.environ.get("JACKFIELD_HOME") or "~/.jackfield"
        return cls(_expanded(chosen).absolute())

    @property
    def jackfield_toml(self) -> Path:
        return self.root / "jackfield.toml"

    @property
    def master_key(self) -> Path:
        return self.root / "master.key"

    @property
    def state_db(self) -> Path:
        return self.root / "state.db"

    @property
    def host_sock(self) -> Path:
        return self.root / "host.sock"

    @property
    def host_lock(self) -> Path:
        return self.root / "host.lock"

    @property
    def groups(self) -> Path:
        return self.root / "groups"

    @property
    def sessions(self) -> Path:
        return self.root / "sessions"

    @property
    def plugins(self) -> Path:
        return self.root / "plugins"

    @property
    def logs(self) -> Path:
        return self.root / "logs"

    @property
    def backups(self) -> Path:
        return self.root / "backups"

    @property
    def last_good(self) -> Path:
        """The newest `jackfield.toml` that a host started with; used when the present one can't be read (C181)."""
        return self.backups / "jackfield.toml.last-good"

    @property
    def initialised(self) -> bool:
        """Whether `jackfield init` has been here: the configuration file exists."""
        return self.jackfield_toml.is_file()

    def require(self) -> Home:
        """This home.

        Raises:
            NotInitialised: there is none at `root`.
        """
        if not self.initialised:
            raise NotInitialised(
                f"there is no Jackfield home at {self.root} (no jackfield.toml in it)",
                fix=f"run `jackfield --home {self.root} init`, or name another home with --home or $JACKFIELD_HOME",
            )
        return self

    def create(self) -> None:
        """Make the folders, each 0700.  Idempotent; a folder that exists keeps its content and becomes 0700."""
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.root.chmod(0o700)
        for folder in (self.groups, self.sessions, self.plugins, self.logs, self.backups):
            folder.mkdir(mode=0o700, exist_ok=True)
            folder.chmod(0o700)


def _expanded(path: str) -> Path:
    """The path with a leading `~` or `~name` replaced."""
    if path != "~" and not path.startswith("~/"):
        try:
            return Path(path).expanduser()
        except RuntimeError as problem:
            raise ConfigError(f"the home {path!r} can't be found: {problem}", fix="name it by its whole path") from None
    folder = user_folder()
    if folder is None:
        raise ConfigError(
            f"{path} can't be found: $HOME is not set, and the system knows no folder of uid {os.getuid()}",
            fix="name the home's place with --home or $JACKFIELD_HOME",
        )
    return Path(folder, path[2:])
