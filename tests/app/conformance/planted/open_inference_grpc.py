"""Faults in an engine of the Open Inference Protocol over gRPC."""

from collections.abc import Callable
from typing import Any

import numpy as np

from app.conformance.messages import message
from tests.app.conformance.engines import Fault, Reply, SpoilCall

_OK, _INVALID, _NOT_FOUND, _INTERNAL = 0, 3, 5, 13


def answers(method: str, change: Callable[[Any], object]) -> SpoilCall:
    """A fault in every answer of a method."""

    def spoil(called: str, _: Any, reply: Reply) -> None:
        if called == method:
            for each in reply.messages:
                change(each)

    return spoil


def outputs(change: Callable[[Any], object]) -> SpoilCall:
    """A fault in every output of an inference."""
    return answers("ModelInfer", lambda answer: [change(each) for each in answer.outputs])


def asking(chosen: Callable[[Any], bool], status: int, method: str = "ModelInfer") -> SpoilCall:
    """Another status of a call whose request is chosen."""

    def spoil(called: str, request: Any, reply: Reply) -> None:
        if called == method and chosen(request):
            empty = [message(f"inference.{method}Response")] if status == _OK else []
            reply.become(status, *empty)

    return spoil


def unknown(called: str, request: Any, reply: Reply) -> None:
    if reply.status == _NOT_FOUND:
        reply.become(_INVALID)


def silent(called: str, request: Any, reply: Reply) -> None:
    reply.text = ""


def misread_raw(called: str, request: Any, reply: Reply) -> None:
    if called == "ModelInfer" and request.raw_input_contents and reply.status == _OK:
        for answer in reply.messages:
            for index, raw in enumerate(answer.raw_output_contents):
                answer.raw_output_contents[index] = (np.frombuffer(raw, "<f4") + 1).tobytes()


def in_two_places(output: Any) -> None:
    output.contents.fp64_contents.append(1)


def too_few(answer: Any) -> None:
    if answer.raw_output_contents:
        answer.raw_output_contents[0] = answer.raw_output_contents[0][:-4]
    else:
        answer.outputs[0].contents.fp32_contents.pop()


def no_inputs(answer: Any) -> None:
    del answer.inputs[:]


def renamed_datatypes(answer: Any) -> None:
    for each in answer.outputs:
        each.datatype = "FLOAT"


def twice(called: str, request: Any, reply: Reply) -> None:
    if called == "ModelInfer" and request.outputs and reply.status == _OK:
        for answer in reply.messages:
            answer.outputs.add().CopyFrom(answer.outputs[0])


def versionless(called: str, request: Any, reply: Reply) -> None:
    if called == "ModelInfer" and request.model_version:
        reply.become(_NOT_FOUND)


SPOILT: dict[str, tuple[str, SpoilCall]] = {
    "not live": ("V2G-001", answers("ServerLive", lambda a: a.Clear())),
    "not ready": ("V2G-002", answers("ServerReady", lambda a: a.Clear())),
    "no name": ("V2G-003", answers("ServerMetadata", lambda a: a.ClearField("name"))),
    "a model not ready": ("V2G-004", answers("ModelReady", lambda a: a.Clear())),
    "no inputs in the metadata": ("V2G-005", answers("ModelMetadata", no_inputs)),
    "datatype FLOAT": ("V2G-006", answers("ModelMetadata", renamed_datatypes)),
    "outputs without a name": ("V2G-007", outputs(lambda o: o.ClearField("name"))),
    "an undeclared output": ("V2G-008", outputs(lambda o: setattr(o, "name", "other"))),
    "another datatype": ("V2G-009", outputs(lambda o: setattr(o, "datatype", "FP64"))),
    "another rank": ("V2G-010", outputs(lambda o: o.shape.append(1))),
    "in two places": ("V2G-011", outputs(in_two_places)),
    "too few elements": ("V2G-012", answers("ModelInfer", too_few)),
    "no id": ("V2G-013", answers("ModelInfer", lambda a: a.ClearField("id"))),
    "another model": ("V2G-014", answers("ModelInfer", lambda a: setattr(a, "model_name", "x"))),
    "raw misread": ("V2G-015", misread_raw),
    "an output twice": ("V2G-016", twice),
    "unknown parameters refused": ("V2G-017", asking(lambda r: "conform-unknown" in r.parameters, _INVALID)),
    "unknown models are INVALID_ARGUMENT": ("V2G-018", unknown),
    "without a word": ("V2G-019", silent),
    "any output": ("V2G-020", asking(lambda r: any(o.name == "conform-unknown" for o in r.outputs), _OK)),
    "no inputs, INTERNAL": ("V2G-021", asking(lambda r: r.model_name != "conform-unknown" and not r.inputs, _INTERNAL)),
    "an unknown datatype, INTERNAL": ("V2G-022", asking(lambda r: any(i.datatype == "CONFORM" for i in r.inputs),
                                                        _INTERNAL)),
    "a wrong shape, INTERNAL": ("V2G-023", asking(lambda r: any(list(i.shape) == [2] for i in r.inputs), _INTERNAL)),
    "both are taken": ("V2G-024", asking(lambda r: bool(r.raw_input_contents)
                                         and any(i.HasField("contents") for i in r.inputs), _OK)),
    "too many raw are taken": ("V2G-025", asking(lambda r: len(r.raw_input_contents) > len(r.inputs), _OK)),
    "no versions": ("V2G-026", versionless),
}  # fmt: skip
"""The clause that names it, and how an answer is spoilt."""

FAULTS = {
    name: Fault(protocol="v2-grpc", model="half_plus_two", clause=clause, call=spoil)
    for name, (clause, spoil) in SPOILT.items()
}
