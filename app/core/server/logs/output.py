"""Configure the format and the destination of log lines."""

import json
import logging
import os
import sys
import threading
from collections.abc import MutableMapping
from types import TracebackType
from typing import Any, Literal, cast

import msgspec
import structlog

from app.core.engine.error_text import printable_text
from app.core.server.logs.lines import LogLines, LogLinesHandler

_SHOWN_FIELDS = frozenset({"timestamp", "level", "event", "outcome", "protocol", "model", "batch_size", "total_ms"})
"""Fields of successful inferences on a terminal, whose lines should not wrap."""

_HALF_TRACEBACK = 16_384
"""Characters at each end of a traceback that are logged: the message of a model's exception may have megabytes."""

_LINE_ENDS = {character.encode(): b"\\u%04x" % ord(character) for character in "\x85\u2028\u2029"}
"""Line ends of Unicode in UTF-8, which JSON allows in strings, and their escapes."""


def configure_logging(log_format: Literal["console", "json"] | None) -> Literal["console", "json"]:
    """Write all log lines, also of libraries, to standard error, as text or as JSON objects.

    Without a format, they are text if standard error is a terminal, JSON otherwise.

    Returns:
        The format.
    """
    _open_missing_fds()
    # Unbuffered: another thread could hold the lock of a buffer at exit.
    lines = LogLines(open(2, "wb", buffering=0, closefd=False))  # noqa: SIM115  open until the process exits
    resolved_format = log_format or ("console" if sys.stderr.isatty() else "json")
    shared_processors: list[Any] = [
        structlog.stdlib.add_log_level,
        structlog.stdlib.ExtraAdder(),
        structlog.processors.TimeStamper(fmt="iso"),
    ]
    if resolved_format == "console":
        final_processors: list[Any] = [
            _shorten_for_terminal,
            _format_exception,
            _escape_control_characters,
            structlog.dev.ConsoleRenderer(
                colors=sys.stderr.isatty(),
                pad_event_to=0,
                pad_level=False,
                exception_formatter=structlog.dev.plain_traceback,
            ),
        ]
        own_processors: list[Any] = [structlog.stdlib.ProcessorFormatter.wrap_for_formatter]
    else:
        final_processors = [_format_exception, _encode_text]
        # Our own lines are frequent, so they skip the records of the standard library and are encoded directly.
        own_processors = [_format_exception, _encode]
        # The readers of the log cannot read Python's own tracebacks.
        sys.excepthook = _log_crash
        threading.excepthook = lambda crash: _log_crash(*crash[:3])
    handler = LogLinesHandler(lines)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared_processors,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *final_processors],
        )
    )
    handler.addFilter(_is_not_disconnect)
    logging.basicConfig(handlers=[handler], level=logging.INFO, force=True)
    logging.captureWarnings(True)
    structlog.configure(
        processors=[structlog.stdlib.add_log_level, structlog.processors.MaybeTimeStamper(fmt="iso"), *own_processors],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.stdlib.LoggerFactory() if resolved_format == "console" else lambda *_: lines,
        cache_logger_on_first_use=True,
    )
    return resolved_format


def _open_missing_fds() -> None:
    """Open closed standard input, output and error on ``/dev/null``.

    Otherwise the next file or connection gets their descriptor, and receives what libraries write to standard error.
    """
    for fd in range(3):
        try:
            os.fstat(fd)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if cast("Any", sys.stderr) is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115  open until the process exits


def _log_crash(kind: type[BaseException], error: BaseException | None, trace: TracebackType | None) -> None:
    if kind is SystemExit:
        # Python ends a thread silently.
        return
    logging.getLogger(__name__).critical("crashed", exc_info=(kind, error or kind(), trace))


def _is_not_disconnect(record: logging.LogRecord) -> bool:
    """Return False for the error of gRPC when a client disconnects: the log line of the request reports it."""
    exception = record.exc_info[1] if record.exc_info else None
    return type(exception).__name__ != "ExecuteBatchError"


def _shorten_for_terminal(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Keep the time of day, and of a successful inference what a person watches; JSON lines have the rest."""
    event["timestamp"] = event["timestamp"][11:19]
    if event.get("outcome") == "ok":
        for name in event.keys() - _SHOWN_FIELDS:
            del event[name]
    return event


def _format_exception(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Replace `exc_info` with the traceback, and keep both ends of a long one, where its frames and messages are."""
    event = structlog.processors.format_exc_info(logger, name, event)
    text = event.get("exception")
    if isinstance(text, str) and (omitted := len(text) - 2 * _HALF_TRACEBACK) > 0:
        middle = f" ... {omitted:,} characters ... "
        event["exception"] = text[:_HALF_TRACEBACK] + middle + text[-_HALF_TRACEBACK:]
    return event


def _escape_control_characters(_: object, __: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Escape control characters from clients, which could control the reader's terminal."""
    for name, value in event.items():
        if isinstance(value, str) and not value.isprintable():
            event[name] = printable_text(value) if name == "exception" else repr(value)
    return event


def _encode(_: object, __: str, event: MutableMapping[str, Any]) -> bytes:
    """Return the event as one line of JSON, also for readers that end lines at Unicode's other line ends."""
    try:
        line = msgspec.json.encode(event, enc_hook=repr)
    except UnicodeEncodeError:
        # Lone surrogates, from the exception of a model or from a name of a file that is not UTF-8.
        line = json.dumps(event, default=repr, ensure_ascii=False).encode(errors="replace")
    if not line.isascii():
        for character, escaped in _LINE_ENDS.items():
            line = line.replace(character, escaped)
    return line


def _encode_text(logger: object, method: str, event: MutableMapping[str, Any]) -> str:
    return _encode(logger, method, event).decode()
