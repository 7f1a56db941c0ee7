"""Paths of the REST API, told apart as the real server does (tensorflow/serving, `http_rest_api_util.cc`)."""

import re
from typing import Literal, cast
from urllib.parse import unquote

import msgspec

from tasks.exchange.error import invalid

__all__ = ("METRICS_PATH", "Address", "Verb", "is_of_the_api", "read_address")

METRICS_PATH = "/monitoring/prometheus/metrics"

Verb = Literal["predict", "classify", "regress", "status", "metadata"]

_WHICH = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_API = re.compile(r"/v1/.*", re.IGNORECASE | re.ASCII)
_POST = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_WHICH}:(?P<verb>classify|regress|predict)", re.IGNORECASE | re.ASCII
)
_GET = re.compile(rf"/v1/models(?:/(?P<model>[^/:]+))?{_WHICH}(?:/(?P<verb>metadata))?", re.IGNORECASE | re.ASCII)

_LARGEST_VERSION = 2**63 - 1
_MOST_DIGITS = 19


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """What a path asks for.

    Attributes:
        model: name of the model.
        version: the version asked for; None for the latest, or for what `label` says.
        label: the version's label.
        verb: what is to be done.
    """

    model: str
    version: int | None = None
    label: str | None = None
    verb: Verb


def is_of_the_api(path: str) -> bool:
    """Whether the API answers at `path`, if only with a refusal."""
    return _API.fullmatch(path) is not None


def read_address(method: str, path: str) -> Address:
    """What `method` on `path` asks for.

    Args:
        method: in capitals.
        path: as it came, percent-encoded, and with the query behind it: the real server reads both as one.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    found = {"GET": _GET, "POST": _POST}[method].fullmatch(path) if method in ("GET", "POST") else None
    malformed = invalid(f"Malformed request: {method} {path}")
    if found is None:
        raise malformed
    version = None if found["version"] is None else _version(found["version"])
    verb = found["verb"] or "status"
    # Letters of the path may be of either case, but a verb that is not in lower case is none of the real server's.
    if method == "POST" and verb != verb.lower():
        raise malformed
    if found["model"] is None:
        raise invalid("Missing model name in request.")
    return Address(
        model=_decoded(found["model"]),
        version=version,
        label=None if found["label"] is None else _decoded(found["label"]),
        verb=cast("Verb", verb if verb == verb.lower() else "status"),
    )


def _version(digits: str) -> int:
    if len(digits.lstrip("0")) > _MOST_DIGITS or int(digits) > _LARGEST_VERSION:
        raise invalid(f"Failed to convert version: {digits} to numeric.")
    return int(digits)


def _decoded(text: str) -> str:
    return unquote(text, errors="replace")
