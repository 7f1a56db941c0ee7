"""Find the names of an engine's models."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from app.core.proto import INFERENCE
from app.plugins.conformance.calls import call_method
from app.plugins.conformance.exchange import Exchange, InconclusiveError
from app.plugins.conformance.probe import Probe
from app.plugins.conformance.tensors import is_object

_VIEW_SUFFIX = "@tensors"
"""The end of the name under which Charioteer serves a model for tensors once more."""

_READY = {"ready": True}
"""Only models that are loaded: others answer nothing that can be checked."""


def list_models(probe: Probe) -> Sequence[str]:
    """Return the sorted names of the engine's models; empty if it does not list them.

    The lists of HTTP are tried, then the repository index, which is an extension of the Open Inference Protocol. Raise
    RequestLimitError if the limit of requests is too low to list them.
    """
    try:
        if probe.transport:
            return sorted(_index(probe))
        exchanges = (probe.get("/v2/models"), probe.get("/v1/models"), probe.post_json("/v2/repository/index", _READY))
        return sorted(set[str]().union(*map(_names, exchanges)))
    except httpx.HTTPError:
        return ()
    finally:
        probe.exchanges.clear()


def model_name(probe: Probe, *paths: str) -> str:
    """Return the given model name, or the only one in a list: a response of `paths`, or over gRPC the repository index.

    Raise InconclusiveError if no name was given, and no list has exactly one.
    """
    if probe.target.model:
        return probe.target.model
    for names in [_index(probe)] if probe.transport else (_names(probe.get(path)) for path in paths):
        if len(names) == 1:
            return names.pop()
    raise InconclusiveError("The model's name is not known; give it with --model")


def model_in_path(probe: Probe, *paths: str) -> str:
    """Return `model_name`, percent-encoded for a path."""
    return quote(model_name(probe, *paths), safe="")


def _index(probe: Probe) -> set[str]:
    index = call_method(probe, INFERENCE, "RepositoryIndex", **_READY)
    return _without_views({model.name for answer in index.answers or () if index.ok for model in answer.models})


def _names(exchange: Exchange) -> set[str]:
    """Return the names in a list of models, or of objects with a name."""
    try:
        content = msgspec.json.decode(exchange.body)
        models = msgspec.convert(content.get("models", []) if is_object(content) else content, list[Any])
        named = [model.get("name") if is_object(model) else model for model in models]
        return _without_views(set(msgspec.convert(named, list[str])))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return set()


def _without_views(names: set[str]) -> set[str]:
    """Return the names that are not empty, without tensor views of listed models."""
    return {name for name in names if name and name.removesuffix(_VIEW_SUFFIX) not in names - {name}}
