"""A protocol of the main port: an image in, its classes out, one a line."""

from collections.abc import Sequence

from charioteer.plugins import (
    BinaryElement,
    BytesTensor,
    CodecCall,
    Endpoint,
    Engine,
    HttpProtocol,
    HttpResponse,
    InferenceRequest,
    InferenceResponse,
    Protocols,
    RequestContext,
    RequestHead,
    ServerSettings,
    infer_endpoint,
)


class AcmeProtocol(HttpProtocol):
    """The protocol of the company Acme."""

    name = "acme"
    prefixes = ("/acme/models",)

    def endpoints(self, engine: Engine, /) -> Sequence[Endpoint]:
        return [infer_endpoint("/acme/models/{target:str}", "Name the classes", start=start, media_types=("image/*",))]


def start(head: RequestHead, body: bytes, context: RequestContext) -> CodecCall:
    """Return how a request is decoded and its response encoded, which workers do."""

    def decode() -> InferenceRequest:
        image = BytesTensor(name="image", shape=(1,), elements=[BinaryElement(body)])
        return InferenceRequest(id=context.request_id, model_name=head.target, inputs=(image,))

    return CodecCall(model_name=head.target, decode=decode, encode=encode)


def encode(response: InferenceResponse) -> HttpResponse:
    """Write the class of each record."""
    predictions = [prediction for output in response.outputs for prediction in output.predictions]
    labels = [getattr(record, "label", "") for prediction in predictions for record in prediction.records()]
    return HttpResponse(content="\n".join(labels).encode(), media_type="text/plain")


def protocols(settings: ServerSettings) -> Protocols:
    """Return the protocols of a server."""
    return Protocols(http=(AcmeProtocol(),))
