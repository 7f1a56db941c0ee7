"""The endpoint `:explain` of KServe V1."""

from collections.abc import Sequence
from functools import partial
from typing import Any

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.protocols.inference_call import HandledCall, HttpResponse, RequestHead
from app.core.protocols.kserve_v1.codec import RequestCodec
from app.core.protocols.kserve_v1.routes import create_codec, v1_inference
from app.core.protocols.kserve_v1.wire import WireResponse
from app.core.protocols.protocol import INFER_FAILURES, Endpoint
from app.plugins.explanations.explainer import explainer_of
from app.plugins.explanations.request import Explanations, explain
from app.plugins.explanations.wire import (
    SaliencyFormat,
    read_saliency_format,
    wire_explanations,
    wire_row_explanations,
)
from tasks.inference.error import ErrorKind
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResponse

_NOT_IMPLEMENTED = 501
"""KServe's status for a model without an explainer."""


class WireExplainedAnswer(WireResponse, frozen=True, kw_only=True):
    """The body of an explanation's response: `explanations[i]` explains `predictions[i]`.

    It is a list of explanations for an image, one for a row of numbers, and any JSON of a model that explains itself.
    """

    explanations: Sequence[Any]


class ExplanationCodec(RequestCodec, kw_only=True, eq=False):
    """Decodes one request, and encodes its response with the explanations; `decode` sets the format of maps."""

    saliency_format: SaliencyFormat = SaliencyFormat.PNG

    def decode(self) -> InferenceRequest:
        request = super().decode()
        self.saliency_format = read_saliency_format(self.parameters)
        return request

    def explain(self, response: InferenceResponse, explanations: Explanations) -> HttpResponse:
        """Encode the response, as an event if the request was one.

        Raise UNSUPPORTED when the model's outputs are not a list of predictions; TOO_LARGE for more pixels than a
        response may hold.
        """
        predictions, parameters = self.predictions(response), self.response_parameters(response)
        match explainer_of(self.servable):
            case "numbers":
                explained: Sequence[Any] = wire_row_explanations(explanations[0])
            case "model":
                explained = explanations[0] if self.servable.description.takes == "tensor" else explanations
            case _:
                explained = wire_explanations(predictions, explanations, self.saliency_format)
        return self.encode_wire(
            WireExplainedAnswer(predictions=predictions, parameters=parameters, explanations=explained)
        )


def endpoints(engine: Engine) -> Sequence[Endpoint]:
    """Return the endpoint."""
    return [
        v1_inference(
            "Predict with a model, and explain which parts of the input led to each prediction",
            verb="explain",
            start=partial(_start, engine),
            answer=WireExplainedAnswer,
            failures=(*INFER_FAILURES, _NOT_IMPLEMENTED),
            statuses={ErrorKind.UNSUPPORTED: _NOT_IMPLEMENTED},
            # Explanations do not wait in the queue of a model.
            queue_model=None,
        )
    ]


def _start(engine: Engine, head: RequestHead, body: bytes, context: RequestContext) -> HandledCall:
    codec = create_codec(engine, head, body, context, ExplanationCodec)
    return HandledCall(
        model_name=codec.model_name,
        handle=explain,
        decode=codec.decode,
        encode=codec.explain,
        map_error_path=codec.map_error_path,
    )
