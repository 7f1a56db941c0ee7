"""Asking GRPS over HTTP, and reading what it says."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

import msgspec

from app.conformance.clause import FaultError, InapplicableError, UntestedError
from app.conformance.grps.messages import REFUSED, asked, expect_failure, expect_success
from app.conformance.probe import Exchange, NotJsonError, Probe
from app.conformance.quoting import brief

__all__ = (
    "BYTES",
    "ROOT",
    "answered",
    "failure",
    "health",
    "message_of",
    "messages_in",
    "model_query",
    "post_bytes",
    "predict",
    "shown",
    "succeeds",
    "success",
)

ROOT = "/grps/v1"
BYTES = "application/octet-stream"
_PREDICT = f"{ROOT}/infer/predict"


def health(probe: Probe, name: str) -> Exchange:
    """GET one of health's paths, each time anew."""
    return probe.send("GET", f"{ROOT}/health/{name}", fresh=True)


def predict(probe: Probe, body: object, **query: str) -> Exchange:
    """POST a message to be predicted."""
    return probe.post_json(f"{_PREDICT}?{urlencode(query)}" if query else _PREDICT, body)


def post_bytes(probe: Probe, body: bytes, kind: str, **query: str) -> Exchange:
    """POST bytes of the Content-Type `kind` to be predicted."""
    path = f"{_PREDICT}?{urlencode(query)}" if query else _PREDICT
    return probe.send("POST", path, body=body, headers={"content-type": kind})


def model_query(probe: Probe) -> dict[str, str]:
    """The query that names the model, if one was named."""
    return {"model": probe.target.model} if probe.target.model else {}


def message_of(exchange: Exchange) -> dict[str, Any]:
    """The message of an answer.

    Raises:
        FaultError: it is none.
    """
    try:
        return exchange.object()
    except NotJsonError as error:
        raise FaultError(f"{error}: {exchange.status} {brief(exchange.body)}") from None


def success(exchange: Exchange) -> dict[str, Any]:
    """The message of an answer that says success.

    Raises:
        FaultError: it says something else.
    """
    message = message_of(exchange)
    expect_success(message)
    if not exchange.ok:
        raise FaultError(f"Expected HTTP status 200 of what succeeded, got {exchange.status}")
    return message


def failure(exchange: Exchange, *codes: int) -> dict[str, Any]:
    """The message of an answer that says failure.

    Raises:
        FaultError: it says something else, or another code than `codes`.
    """
    message = message_of(exchange)
    expect_failure(message, *codes)
    return message


def succeeds(exchange: Exchange) -> bool:
    """Whether an answer is bytes, or a message that says success."""
    if exchange.ok and exchange.headers.get("content-type", "").startswith(BYTES):
        return True
    try:
        expect_success(exchange.object())
    except (FaultError, NotJsonError):
        return False
    return exchange.ok


def answered(probe: Probe, messages: Sequence[Mapping[str, object]]) -> tuple[Mapping[str, Any], Exchange]:
    """The first of the messages that is answered, and what it is answered with.

    Raises:
        UntestedError: none is.
    """
    for each in messages:
        exchange = predict(probe, each)
        if succeeds(exchange):
            return each, exchange
    raise UntestedError(REFUSED)


def shown(probe: Probe) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """A message that is answered with a message, and that message.

    Raises:
        InapplicableError: the answer is of bytes alone.
    """
    sent, exchange = answered(probe, asked(probe.target))
    if exchange.headers.get("content-type", "").startswith(BYTES):
        raise InapplicableError("About models that answer with messages")
    return sent, exchange.object()


def messages_in(body: bytes) -> Sequence[dict[str, Any]]:
    """JSON objects that stand one right behind the other, with nothing but white space between."""
    text, found = body.decode(errors="replace").strip(), list[dict[str, Any]]()
    while text:
        end = _end_of_object(text)
        try:
            found.append(msgspec.json.decode(text[:end].encode(), type=dict[str, Any]))
        except msgspec.DecodeError as error:
            raise FaultError(f"Expected messages one right behind the other: {error}, got {brief(text)}") from None
        text = text[end:].lstrip()
    return found


def _end_of_object(text: str) -> int:
    depth, quoted, escaped = 0, False, False
    for place, letter in enumerate(text):
        if quoted:
            quoted, escaped = letter != '"' or escaped, letter == "\\" and not escaped
        elif letter == '"':
            quoted = True
        elif letter in "{}":
            depth += 1 if letter == "{" else -1
            if depth == 0:
                return place + 1
        elif depth == 0:
            break
    return len(text)
