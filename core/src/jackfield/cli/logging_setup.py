"""Where log lines go: people read them on the terminal, programs in `logs/host.log`."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Any

from jackfield.config.home import Home

if TYPE_CHECKING:
    from structlog.typing import EventDict, WrappedLogger

__all__ = ["host_logging", "quiet_logging"]

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


def host_logging(home: Home, *, level: str = "info", verbose: int = 0, terminal: bool = True) -> None:
    """For the host: JSON lines into a rotating file, and with `terminal` lines for people on stderr.

    `-v` makes both say more.  Each call replaces what an earlier one set up.
    """
    import logging.handlers

    import structlog

    chosen = logging.DEBUG if verbose > 1 else min(_LEVELS[level], logging.INFO) if verbose else _LEVELS[level]
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    file = logging.handlers.RotatingFileHandler(
        home.logs / "host.log", maxBytes=FILE_BYTES, backupCount=FILES_KEPT, encoding="utf-8", errors="backslashreplace"
    )
    file.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, structlog.processors.format_exc_info],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(ensure_ascii=True),
            ],
        )
    )
    handlers: list[logging.Handler] = [file]
    if terminal:
        console = logging.StreamHandler(sys.stderr)
        console.setFormatter(
            structlog.stdlib.ProcessorFormatter(
                foreign_pre_chain=shared,
                processors=[
                    structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                    _harmless,
                    structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty(), pad_event_to=0),
                ],
            )
        )
        handlers.append(console)
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    for handler in handlers:
        root.addHandler(handler)
    root.setLevel(chosen)
    for noisy in ("asyncio", "urllib3", "markdown_it"):
        logging.getLogger(noisy).setLevel(max(chosen, logging.WARNING))


def _harmless(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Escape what could move the cursor or turn the line around (C215)."""
    from jackfield.cli import printable

    return {key: printable.line(value) if isinstance(value, str) else value for key, value in event.items()}
