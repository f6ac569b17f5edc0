"""Where log lines go: people read them on the terminal, programs in `logs/host.jsonl`."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from jackfield.config.home import Home

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

__all__ = ["FILES_KEPT", "FILE_BYTES", "host_logging", "quiet_logging"]

FILE_BYTES = 10 * 1024 * 1024
FILES_KEPT = 5
_LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def quiet_logging(verbose: int) -> None:
    """For commands: nothing on the terminal that was not asked for with `-v`."""
    root = logging.getLogger()
    root.setLevel([logging.ERROR, logging.INFO, logging.DEBUG][min(verbose, 2)])
    if verbose and not root.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        root.addHandler(handler)
    elif not root.handlers:
        root.addHandler(logging.NullHandler())
    _hush(root.level)


def host_logging(
    home: Home,
    *,
    level: str = "info",
    verbose: int = 0,
    terminal: bool = True,
    file_bytes: int = FILE_BYTES,
    files_kept: int = FILES_KEPT,
) -> None:
    """For the host: JSON lines into a file that turns over, and with `terminal` lines for people on stderr.

    `-v` makes both say more.  Secrets are taken out of both.  Each call replaces what an earlier one set up.
    """
    from jackfield.host.logs.files import LOG_NAME, LogFile

    chosen = logging.DEBUG if verbose > 1 else min(_LEVELS[level], logging.INFO) if verbose else _LEVELS[level]
    _learn_secrets()
    handlers: list[logging.Handler] = [LogFile(home.logs / LOG_NAME, limit=file_bytes, keep=files_kept)]
    if terminal:
        handlers.append(_console())
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(chosen)
    _hush(chosen)


def _hush(level: int) -> None:
    """Libraries whose lines tell nobody anything."""
    for noisy in ("asyncio", "urllib3", "markdown_it", "httpcore2", "httpx2"):
        logging.getLogger(noisy).setLevel(max(level, logging.WARNING))


def _learn_secrets() -> None:
    """Those of the environment; those of the store are learned when it is opened."""
    from jackfield.host.secrets.held import from_environment
    from jackfield.redaction import REDACTOR

    REDACTOR.register(*from_environment())


def _console() -> logging.Handler:
    import structlog

    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    console = logging.StreamHandler(sys.stderr)
    console.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.processors.format_exc_info],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _harmless,
                structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0),
            ],
        )
    )
    return console


def _harmless(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Take secrets out, and escape what could move the cursor or turn the line around (C133, C215)."""
    from jackfield.cli import printable
    from jackfield.redaction import REDACTOR

    def shown(name: str, value: object) -> object:
        if not isinstance(value, str):
            return value
        text = REDACTOR(value)
        return printable.block(text) if name == "exception" else printable.line(text)

    return {name: shown(name, value) for name, value in event.items()}
