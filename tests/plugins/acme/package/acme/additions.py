"""What is added to the protocols of core."""

from collections.abc import Mapping, Sequence
from typing import Any

from charioteer.plugins import Endpoint, Engine, GrpcMethods, HttpRequest, RequestContext, read_endpoint, unary_handler


def endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return what is added to the protocol V1."""

    def labels(request: HttpRequest) -> Sequence[str]:
        registration = engine.registry.find(request.path_params["target"])
        return registration.ready_servable().description.labels

    return [read_endpoint("/v1/models/{target:str}/labels", "Classes of a model", handle=labels)]


def methods(engine: Engine) -> Mapping[str, Any]:
    """Return what is added to the gRPC service of the protocol V2."""

    async def labels(data: bytes, context: RequestContext) -> bytes:
        registration = engine.registry.find(data.decode())
        return "\n".join(registration.ready_servable().description.labels).encode()

    return {"AcmeLabels": unary_handler("acme", labels)}


METHODS = GrpcMethods(permissions={"AcmeLabels": "infer"}, handlers=methods)
