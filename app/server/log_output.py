"""How log lines look, and where they go."""

import logging
import sys
from collections.abc import MutableMapping
from functools import partial
from typing import Any, Literal

import msgspec
import structlog

from app.server.log_lines import Handed, LogLines
from app.server.standard_files import log_file, never_wait, occupy

__all__ = ("configure_logging",)


def configure_logging(log_format: Literal["console", "json"] | None) -> None:
    """Write every log line, the libraries' included, to standard error: for people, or as JSON objects.

    Args:
        log_format: None means for people when standard error is a terminal.
    """
    occupy()
    lines = LogLines(log_file())
    never_wait()
    chosen = log_format or ("console" if sys.stderr.isatty() else "json")
    shared: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    if chosen == "console":
        final: list[Any] = [_printable, structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
        ours: list[Any] = [structlog.stdlib.ProcessorFormatter.wrap_for_formatter]
        factory: Any = structlog.stdlib.LoggerFactory()
    else:
        final = [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_as_json)]
        # Lines of our own are many: they go out as bytes, past the standard library's records.
        ours = [structlog.processors.format_exc_info, _as_bytes]
        factory = partial(_given, lines)
    handler = Handed(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final],
        )
    )
    handler.addFilter(_is_news)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, structlog.processors.TimeStamper(fmt="iso"), *ours],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=factory,
        cache_logger_on_first_use=True,
    )


def _is_news(record: logging.LogRecord) -> bool:
    """Not what gRPC raises where the sender left while an answer was written: the request's own line says so."""
    raised = record.exc_info[1] if record.exc_info else None
    return type(raised).__name__ != "ExecuteBatchError"


def _given(logger: LogLines, *_: object) -> LogLines:
    return logger


def _printable(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """What senders wrote, without the control characters that would steer the reader's terminal."""
    for name, value in event.items():
        if isinstance(value, str) and name != "exception" and not value.isprintable():
            event[name] = repr(value)
    return event


def _as_bytes(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    return msgspec.json.encode(event, enc_hook=repr)


def _as_json(event: object, **_: object) -> str:
    return msgspec.json.encode(event, enc_hook=repr).decode()
