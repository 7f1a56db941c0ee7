"""List the models of an engine."""

from collections.abc import Iterator, Sequence

import httpx
import msgspec

from app.conformance.client.calls import call_method
from app.conformance.client.probe import Probe, RequestLimitError, ResponseTimeoutError
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
    """
    try:
        return sorted({name for name in (_grpc_names(probe) if probe.transport else _http_names(probe)) if name})
    except (ResponseTimeoutError, RequestLimitError, httpx.HTTPError):
        return ()
    finally:
        probe.exchanges.clear()


def _grpc_names(probe: Probe) -> Iterator[str]:
    index = call_method(probe, INFERENCE, "RepositoryIndex")
    if index.ok and index.answers:
        yield from (model.name for model in index.answers[0].models)


def _http_names(probe: Probe) -> Iterator[str]:
    for exchange in (probe.get("/v2/models"), probe.get("/v1/models"), probe.post_json("/v2/repository/index", {})):
        try:
            content = msgspec.json.decode(exchange.body, type=_Models | list[_Model | str])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue
        if isinstance(content, _Models):
            yield from (model.id for model in content.data)
        for model in content.models if isinstance(content, _Models) else content:
            yield model if isinstance(model, str) else model.name
