"""Deliberate faults in an engine of the Open Inference Protocol over gRPC."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from app.core.proto import message_class
from tests.plugins.conformance.deliberate_faults.spoiling import change_messages, replace_reply, without_error_text
from tests.plugins.conformance.engines import CallFault, CallFaults, Reply, faults_of

_OK, _INVALID, _NOT_FOUND, _INTERNAL = 0, 3, 5, 13


def change_outputs(change: Callable[[Any], object]) -> CallFault:
    return change_messages("ModelInfer", lambda answer: [change(output) for output in answer.outputs])


replace_inference = partial(replace_reply, "ModelInfer")
EMPTY = message_class("inference.ModelInferResponse")()


def invalid_argument_for_unknown_model(called: str, request: Any, reply: Reply) -> None:
    if reply.status == _NOT_FOUND:
        reply.replace(_INVALID)


def misread_raw(answer: Any) -> None:
    raw_contents = [(np.frombuffer(raw, "<f4") + 1).tobytes() for raw in answer.raw_output_contents]
    answer.raw_output_contents[:] = raw_contents


def elements(tensor: Any) -> Any:
    return tensor.contents.fp32_contents


def only_first_element(answer: Any) -> None:
    for output in answer.outputs:
        output.shape[:] = [1]
        del elements(output)[1:]
    answer.raw_output_contents[:] = [raw[:4] for raw in answer.raw_output_contents]


def too_few(answer: Any) -> None:
    if answer.raw_output_contents:
        answer.raw_output_contents[0] = answer.raw_output_contents[0][:-4]
    else:
        answer.outputs[0].contents.fp32_contents.pop()


def truncated_raw(answer: Any) -> None:
    for output in answer.outputs:
        output.ClearField("contents")
    answer.raw_output_contents[:] = [b"\5\0\0"] * len(answer.outputs)


def renamed_datatypes(answer: Any) -> None:
    for output in answer.outputs:
        output.datatype = "FLOAT"


CALL_FAULTS: CallFaults = {
    "not live": ("V2G-001", change_messages("ServerLive", lambda a: a.Clear())),
    "not ready": ("V2G-002", change_messages("ServerReady", lambda a: a.Clear())),
    "no name": ("V2G-003", change_messages("ServerMetadata", lambda a: a.ClearField("name"))),
    "a model not ready": ("V2G-004", change_messages("ModelReady", lambda a: a.Clear())),
    "no inputs in the metadata": ("V2G-006", change_messages("ModelMetadata", lambda a: a.ClearField("inputs"))),
    "datatype FLOAT": ("V2G-S01", change_messages("ModelMetadata", renamed_datatypes)),
    "outputs without a name": ("V2G-008", change_outputs(lambda o: o.ClearField("name"))),
    "an undeclared output": ("V2G-S02", change_outputs(lambda o: setattr(o, "name", "other"))),
    "another datatype": ("V2G-S03", change_outputs(lambda o: setattr(o, "datatype", "FP64"))),
    "another rank": ("V2G-S04", change_outputs(lambda o: o.ClearField("shape"))),
    "contents in two places": ("V2G-011", change_outputs(lambda o: o.contents.fp64_contents.append(1))),
    "too few elements": ("V2G-012", change_messages("ModelInfer", too_few)),
    "no id": ("V2G-S05", change_messages("ModelInfer", lambda a: a.ClearField("id"))),
    "another model": ("V2G-S06", change_messages("ModelInfer", lambda a: setattr(a, "model_name", "x"))),
    "raw misread": ("V2G-015", change_messages("ModelInfer", misread_raw, lambda r: r.raw_input_contents)),
    "an output twice": ("V2G-S07",
        change_messages("ModelInfer", lambda a: a.outputs.add().CopyFrom(a.outputs[0]), lambda r: r.outputs)),
    "parameters rejected": ("V2G-S08", replace_inference(lambda r: "conform-unknown" in r.parameters, _INVALID)),
    "unknown models are INVALID_ARGUMENT": ("V2G-018", invalid_argument_for_unknown_model),
    "errors without a message": ("V2G-019", without_error_text),
    "any output accepted": ("V2G-S09",
        replace_inference(lambda r: any(o.name == "conform-unknown" for o in r.outputs), _OK, EMPTY)),
    "no inputs, INTERNAL": ("V2G-021",
        replace_inference(lambda r: r.model_name != "conform-unknown" and not r.inputs, _INTERNAL)),
    "an unknown datatype, INTERNAL": ("V2G-S10",
        replace_inference(lambda r: any(i.datatype == "CONFORM" for i in r.inputs), _INTERNAL)),
    "a wrong shape, INTERNAL": ("V2G-S11",
        replace_inference(lambda r: any(list(i.shape) == [2] and len(elements(i)) == 1 for i in r.inputs), _INTERNAL)),
    "second element dropped": ("V2G-013",
        change_messages("ModelInfer", only_first_element, lambda r: any(len(elements(i)) == 2 for i in r.inputs))),
    "raw and typed contents accepted": ("V2G-024",
        replace_inference(
            lambda r: r.raw_input_contents and any(i.HasField("contents") for i in r.inputs), _OK, EMPTY)),
    "too many raw contents accepted": ("V2G-025",
        replace_inference(lambda r: len(r.raw_input_contents) > len(r.inputs), _OK, EMPTY)),
    "no versions": ("V2G-026", replace_inference(lambda r: r.model_version, _NOT_FOUND)),
    "truncated raw elements": ("V2G-012", change_messages("ModelInfer", truncated_raw)),
    "truncated raw texts": ("V2G-012", change_messages("ModelInfer", truncated_raw), "greeter"),
}  # fmt: skip

FAULTS = faults_of("v2-grpc", "half_plus_two", CALL_FAULTS, "change_call")
