"""Send inferences to an engine over the Open Inference Protocol's gRPC API."""

from typing import Any

from google.protobuf.json_format import ParseDict, ParseError

from app.conformance.calls import Call, call, only_answer
from app.conformance.clause import UntestedError
from app.conformance.contents import FIELDS, in_raw, made_input
from app.conformance.messages import OPEN_INFERENCE, message
from app.conformance.probe import Probe
from app.conformance.quoting import brief

__all__ = (
    "SENDERS_FAULTS",
    "answer_of",
    "answered",
    "call_method",
    "infer",
    "made_request",
    "metadata_of",
    "model_of",
    "raw_form",
)

SENDERS_FAULTS = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", "OUT_OF_RANGE")
"""Statuses for errors that the client made."""


def call_method(probe: Probe, method: str, **fields: Any) -> Call:
    """Call a method of the service with a request of `fields`."""
    return call(probe, OPEN_INFERENCE, method, message(f"inference.{method}Request", **fields))


def model_of(probe: Probe) -> str:
    """Return the given model name, or the only one in the repository index (an extension).

    Raises:
        UntestedError: no name was given, and the index does not have exactly one.
    """
    if probe.target.model:
        return probe.target.model
    listed = call_method(probe, "RepositoryIndex")
    names = {model.name for model in listed.answers[0].models} if listed.ok and listed.answers else set[str]()
    if len(names) != 1:
        raise UntestedError("The model's name is not known; give it with --model")
    return names.pop()


def metadata_of(probe: Probe) -> Any:
    """Return the engine's metadata of the model."""
    return only_answer(call_method(probe, "ModelMetadata", name=model_of(probe)))


def made_request(probe: Probe) -> Any:
    """Return a request that the model can answer: the given one, or one generated from the metadata."""
    if probe.target.request:
        try:
            made = ParseDict(dict(probe.target.request), message("inference.ModelInferRequest"))
        except ParseError as error:
            raise UntestedError(f"--request is not a ModelInferRequest in protobuf's JSON: {error}") from None
        made.model_name = model_of(probe)
        return made
    made = message("inference.ModelInferRequest", model_name=model_of(probe))
    specs = [(spec, *made_input(spec)) for spec in metadata_of(probe).inputs]
    for spec, shape, elements in specs:
        tensor = made.inputs.add(name=spec.name, datatype=spec.datatype, shape=shape)
        if elements:
            getattr(tensor.contents, FIELDS[spec.datatype]).extend(elements)
    return made if all(elements is not None for _, _, elements in specs) else raw_form(made)


def raw_form(request: Any) -> Any:
    """Return a copy of `request` with all elements in raw_input_contents."""
    made = message("inference.ModelInferRequest")
    made.CopyFrom(request)
    if not made.raw_input_contents:
        made.raw_input_contents.extend([in_raw(tensor) for tensor in request.inputs])
        for tensor in made.inputs:
            tensor.ClearField("contents")
    return made


def infer(probe: Probe, request: Any, *, fresh: bool = False) -> Call:
    """Call `ModelInfer`."""
    return call(probe, OPEN_INFERENCE, "ModelInfer", request, fresh=fresh)


def answered(probe: Probe, request: Any) -> Any:
    """Return the response to a generated request.

    Raises:
        UntestedError: the engine rejected the generated request, which proves nothing.
    """
    made = infer(probe, request)
    if made.code in SENDERS_FAULTS:
        raise UntestedError(f"The engine refuses the request, with {made.code} {brief(made.body)}; give a body"
                            " with --request")  # fmt: skip
    return only_answer(made)


def answer_of(probe: Probe) -> Any:
    """Return the response to the given or generated request.

    Raises:
        UntestedError: the engine rejected it, or the response has no outputs.
    """
    answer = answered(probe, made_request(probe))
    if not answer.outputs:
        raise UntestedError("There are no outputs")
    return answer
