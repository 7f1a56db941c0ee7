"""Send inferences to an engine over the Open Inference Protocol's gRPC API."""

from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from app.conformance.check import InconclusiveError
from app.conformance.client.calls import GrpcCall, call, first_response
from app.conformance.client.probe import Probe
from app.conformance.open_inference.tensor_contents import FIELDS, generate_input, to_raw
from app.conformance.quoting import quote
from app.proto import INFERENCE, message_class

CLIENT_ERRORS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE")
"""Statuses for errors that the client made."""


def call_method(probe: Probe, method: str, **fields: Any) -> GrpcCall:
    """Call a method of the service with a request of `fields`."""
    return call(probe, INFERENCE, method, message_class(f"inference.{method}Request")(**fields))


def model_of(probe: Probe) -> str:
    """Return the given model name, or the only one in the repository index (an extension).

    Raises:
        InconclusiveError: no name was given, and the index does not have exactly one.
    """
    if probe.target.model:
        return probe.target.model
    index = call_method(probe, "RepositoryIndex")
    names = {model.name for model in index.answers[0].models} if index.ok and index.answers else set[str]()
    if len(names) != 1:
        raise InconclusiveError("The model's name is not known; give it with --model")
    return names.pop()


def metadata_of(probe: Probe) -> Any:
    """Return the engine's metadata of the model."""
    return first_response(call_method(probe, "ModelMetadata", name=model_of(probe)))


def build_request(probe: Probe) -> Any:
    """Return a request that the model can answer: the given one, or one generated from the metadata."""
    if probe.target.request:
        try:
            request = ParseDict(dict(probe.target.request), message_class("inference.ModelInferRequest")())
        except ParseError as error:
            raise InconclusiveError(f"--request is not a ModelInferRequest in protobuf's JSON: {error}") from None
        request.model_name = model_of(probe)
        return request
    request = message_class("inference.ModelInferRequest")(model_name=model_of(probe))
    specs = [(spec, *generate_input(spec)) for spec in metadata_of(probe).inputs]
    for spec, shape, elements in specs:
        tensor = request.inputs.add(name=spec.name, datatype=spec.datatype, shape=shape)
        if elements:
            getattr(tensor.contents, FIELDS[spec.datatype]).extend(elements)
    return request if all(elements is not None for _, _, elements in specs) else with_raw_contents(request)


def with_raw_contents(request: Any) -> Any:
    """Return a copy of `request` with all elements in raw_input_contents."""
    raw_request = message_class("inference.ModelInferRequest")()
    raw_request.CopyFrom(request)
    if not raw_request.raw_input_contents:
        raw_request.raw_input_contents.extend([to_raw(tensor) for tensor in request.inputs])
        for tensor in raw_request.inputs:
            tensor.ClearField("contents")
    return raw_request


def infer(probe: Probe, request: Any, *, fresh: bool = False) -> GrpcCall:
    """Call `ModelInfer`."""
    return call(probe, INFERENCE, "ModelInfer", request, fresh=fresh)


def expect_accepted(probe: Probe, request: Any) -> Any:
    """Return the response to a generated request.

    Raises:
        InconclusiveError: the engine rejected the generated request, which proves nothing.
    """
    exchange = infer(probe, request)
    if exchange.code in CLIENT_ERRORS:
        raise InconclusiveError(
            f"The engine refuses the request, with {exchange.code} {quote(exchange.body)}; give a body with --request"
        )
    return first_response(exchange)


def expect_outputs(probe: Probe) -> Any:
    """Return the response to the given or generated request.

    Raises:
        InconclusiveError: the engine rejected it, or the response has no outputs.
    """
    answer = expect_accepted(probe, build_request(probe))
    if not answer.outputs:
        raise InconclusiveError("There are no outputs")
    return answer
