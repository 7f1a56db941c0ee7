"""Parse paths of the REST API as the real server does (tensorflow/serving, `http_rest_api_util.cc`)."""

import re
from contextlib import suppress
from typing import Literal, cast
from urllib.parse import unquote

import msgspec

from tasks.inference.error import InferenceError, invalid

METRICS_PATH = "/monitoring/prometheus/metrics"

Verb = Literal["predict", "classify", "regress", "status", "metadata"]

_VERSION_OR_LABEL = r"(?:/versions/(?P<version>\d+)|/labels/(?P<label>[^/:]+))?"
_API = re.compile(r"/v1/.*", re.IGNORECASE | re.ASCII)
_POST = re.compile(
    rf"/v1/models/(?P<model>[^/:]+){_VERSION_OR_LABEL}:(?P<verb>classify|regress|predict)", re.IGNORECASE | re.ASCII
)
_GET = re.compile(
    rf"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION_OR_LABEL}(?:/(?P<verb>metadata))?", re.IGNORECASE | re.ASCII
)

_MAX_VERSION = 2**63 - 1
_MAX_DIGITS = 19


class ModelTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a path.

    Attributes:
        model: name of the model.
        version: the requested version; None for the latest version, or for the version of `label`.
        label: the version's label.
        verb: the requested operation.
    """

    model: str
    version: int | None = None
    label: str | None = None
    verb: Verb


def is_api_path(path: str) -> bool:
    """Return whether the API handles `path`, even if only with an error."""
    return _API.fullmatch(path) is not None


def parse_target(method: str, path: str) -> ModelTarget:
    """Parse the target of `method`, in capitals, on `path`.

    The path is as received: percent-encoded, and with its query, which the real server treats as a part of it.

    Raises:
        InferenceError: INVALID_REQUEST.
    """
    match = {"GET": _GET, "POST": _POST}[method].fullmatch(path) if method in ("GET", "POST") else None
    malformed = invalid(f"Malformed request: {method} {path}")
    if match is None:
        raise malformed
    version = None if match["version"] is None else _version(match["version"])
    verb = match["verb"] or "status"
    # Paths are case-insensitive, but the real server knows verbs only in lower case.
    if method == "POST" and verb != verb.lower():
        raise malformed
    if match["model"] is None:
        raise invalid("Missing model name in request.")
    return ModelTarget(
        model=_percent_decoded(match["model"]),
        version=version,
        label=None if match["label"] is None else _percent_decoded(match["label"]),
        verb=cast("Verb", verb if verb == verb.lower() else "status"),
    )


def served_methods(path: str) -> list[str]:
    """Return the methods that the API answers at `path`, sorted."""
    methods = ["OPTIONS"]
    for method in ("GET", "POST"):
        with suppress(InferenceError):
            parse_target(method, path)
            methods.append(method)
    return sorted(methods)


def _version(digits: str) -> int:
    significant = digits.lstrip("0") or "0"
    if len(significant) > _MAX_DIGITS or int(significant) > _MAX_VERSION:
        raise invalid(f"Failed to convert version: {digits} to numeric.")
    return int(significant)


def _percent_decoded(text: str) -> str:
    return unquote(text, errors="replace")
