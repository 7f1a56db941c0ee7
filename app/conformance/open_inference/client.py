"""Send inferences to an engine over the Open Inference Protocol's gRPC API."""

from typing import Any

from app.conformance.check import InconclusiveError
from app.conformance.client.calls import (
    GrpcCall,
    call,
    call_method,
    expect_accepted,
    first_response,
    parse_request,
)
from app.conformance.client.model_names import model_name
from app.conformance.client.probe import Probe
from app.conformance.open_inference.tensor_contents import FIELDS, generate_input, to_raw
from app.proto import INFERENCE, message_class


def metadata_of(probe: Probe) -> Any:
    """Return the engine's metadata of the model."""
    return first_response(call_method(probe, INFERENCE, "ModelMetadata", name=model_name(probe)))


def build_request(probe: Probe) -> Any:
    """Return a request that the model can answer: the given one, or one generated from the metadata."""
    if probe.target.request:
        request = parse_request(probe.target.request, "inference.ModelInferRequest")
        request.model_name = model_name(probe)
        return request
    request = message_class("inference.ModelInferRequest")(model_name=model_name(probe))
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


def expect_outputs(probe: Probe) -> Any:
    """Return the response to the given or generated request.

    Raises:
        InconclusiveError: the engine rejected it, or the response has no outputs.
    """
    answer = expect_accepted(infer(probe, build_request(probe)))
    if not answer.outputs:
        raise InconclusiveError("There are no outputs")
    return answer
