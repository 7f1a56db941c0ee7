"""Find the names of an engine's models."""

from collections.abc import Sequence
from urllib.parse import quote

import httpx
import msgspec

from app.conformance.client.calls import call_method
from app.conformance.client.exchange import Exchange, InconclusiveError
from app.conformance.client.probe import Probe
from app.proto import INFERENCE


class _Model(msgspec.Struct):
    name: str


class _OpenAIModel(msgspec.Struct):
    id: str


class _Models(msgspec.Struct):
    models: list[_Model | str] = []
    data: list[_OpenAIModel] = []


def list_models(probe: Probe) -> Sequence[str]:
    """Return the sorted names of the engine's models; empty if it does not list them.

    The lists of HTTP are tried, then the repository index, which is an extension of the Open Inference Protocol.

    Raises:
        RequestLimitError: the limit of requests is too low to list them.
    """
    try:
        if probe.transport:
            return sorted(_index(probe))
        exchanges = (probe.get("/v2/models"), probe.get("/v1/models"), probe.post_json("/v2/repository/index", {}))
        return sorted(set[str]().union(*map(_names, exchanges)))
    except httpx.HTTPError:
        return ()
    finally:
        probe.exchanges.clear()


def model_name(probe: Probe, *paths: str) -> str:
    """Return the given model name, or the only one in a list: a response of `paths`, or over gRPC the repository index.

    Raises:
        InconclusiveError: no name was given, and no list has exactly one.
    """
    if probe.target.model:
        return probe.target.model
    for names in [_index(probe)] if probe.transport else (_names(probe.get(path)) for path in paths):
        if len(names) == 1:
            return names.pop()
    raise InconclusiveError("The model's name is not known; give it with --model")


def model_in_path(probe: Probe, *paths: str) -> str:
    """Return `model_name`, percent-encoded for a path.

    Raises:
        InconclusiveError: no name was given, and no list has exactly one.
    """
    return quote(model_name(probe, *paths), safe="")


def _index(probe: Probe) -> set[str]:
    index = call_method(probe, INFERENCE, "RepositoryIndex")
    return {model.name for answer in index.answers if index.ok for model in answer.models} - {""}


def _names(exchange: Exchange) -> set[str]:
    try:
        content = msgspec.json.decode(exchange.body, type=_Models | list[_Model | str])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return set()
    listed = content.models if isinstance(content, _Models) else content
    ids = {model.id for model in content.data} if isinstance(content, _Models) else set[str]()
    return (ids | {model if isinstance(model, str) else model.name for model in listed}) - {""}
