"""Deliberate faults in an engine of TensorFlow Serving over gRPC."""

from collections.abc import Callable
from typing import Any

from app.plugins.tensorflow_serving.proto import message_class
from tests.plugins.conformance.deliberate_faults.spoiling import change_messages, replace_reply, without_error_text
from tests.plugins.conformance.engines import CallFault, CallFaults, Reply, faults_of

_INVALID, _NOT_FOUND, _INTERNAL = 3, 5, 13
_UNKNOWN = "conform-unknown"


def accept_when(
    matches: Callable[[Any], object], method: str = "Predict", answer: str = "PredictResponse"
) -> CallFault:
    """Answer requests that match with an empty message."""
    return replace_reply(method, matches, 0, message_class(f"tensorflow.serving.{answer}")())


def replace_status(old: int, new: int, matches: Callable[[Any], object]) -> CallFault:
    """Replace the status of refused requests of any method that match."""

    def change_call(called: str, request: Any, reply: Reply) -> None:
        if reply.status == old and hasattr(request, "model_spec") and matches(request):
            reply.replace(new)

    return change_call


def plus_one(answer: Any) -> None:
    values = answer.outputs["y"].float_val
    values[:] = [value + 1 for value in values]


def renamed_output(answer: Any) -> None:
    answer.outputs["z"].CopyFrom(answer.outputs.pop("y"))


def regressions_plus_one(answer: Any) -> None:
    for regression in answer.result.regressions:
        regression.value += 1


def repeat_versions(answer: Any) -> None:
    answer.model_version_status.extend(list(answer.model_version_status))


def truncated_content(answer: Any) -> None:
    answer.outputs["y"].ClearField("float_val")
    answer.outputs["y"].tensor_content = b"\0"


CALL_FAULTS: CallFaults = {
    "versions without a state": ("TFSG-002",
        change_messages("GetModelStatus", lambda a: a.model_version_status[0].ClearField("state"))),
    "all versions returned": ("TFSG-003",
        change_messages("GetModelStatus", repeat_versions, lambda r: r.model_spec.HasField("version"))),
    "reloads accepted": ("TFSG-004", accept_when(lambda _: True, "HandleReloadConfigRequest", "ReloadConfigResponse")),
    "another type URL": ("TFSG-005",
        change_messages("GetModelMetadata", lambda a: setattr(a.metadata["signature_def"], "type_url", "x/y"))),
    "any metadata field accepted": ("TFSG-006",
        accept_when(lambda r: r.metadata_field != ["signature_def"], "GetModelMetadata", "GetModelMetadataResponse")),
    "an undeclared output": ("TFSG-007", change_messages("Predict", renamed_output)),
    "too many elements": ("TFSG-008", change_messages("Predict", lambda a: a.outputs["y"].float_val.append(1))),
    "too short tensor_content": ("TFSG-008", change_messages("Predict", truncated_content)),
    "tensor_content misread": ("TFSG-009",
        change_messages("Predict", plus_one, lambda r: r.inputs["x"].tensor_content)),
    "one value misread": ("TFSG-010",
        change_messages("Predict", plus_one, lambda r: len(r.inputs["x"].float_val) == 1)),
    "output_filter ignored": ("TFSG-011",
        change_messages("Predict", lambda a: a.outputs["z"].CopyFrom(a.outputs["y"]), lambda r: r.output_filter)),
    "no version in the answer": ("TFSG-012", change_messages("Predict", lambda a: a.model_spec.ClearField("version"))),
    "unknown models are INVALID_ARGUMENT": ("TFSG-013",
        replace_status(_NOT_FOUND, _INVALID, lambda r: r.model_spec.name == _UNKNOWN)),
    "unknown versions are INVALID_ARGUMENT": ("TFSG-014",
        replace_status(_NOT_FOUND, _INVALID, lambda r: r.model_spec.HasField("version"))),
    "unknown labels are NOT_FOUND": ("TFSG-015",
        replace_status(_INVALID, _NOT_FOUND, lambda r: r.model_spec.version_label)),
    "any signature accepted": ("TFSG-016", accept_when(lambda r: r.model_spec.signature_name == _UNKNOWN)),
    "no model is NOT_FOUND": ("TFSG-001", replace_status(_INVALID, _NOT_FOUND, lambda r: not r.model_spec.name)),
    "any input accepted": ("TFSG-017", accept_when(lambda r: _UNKNOWN in r.inputs)),
    "any output accepted": ("TFSG-018", accept_when(lambda r: _UNKNOWN in r.output_filter)),
    "another datatype, INTERNAL": ("TFSG-019",
        replace_status(_INVALID, _INTERNAL, lambda r: "dtype: DT_STRING" in str(r))),
    "another size, INTERNAL": ("TFSG-020", replace_status(_INVALID, _INTERNAL, lambda r: "tensor_content" in str(r))),
    "errors without a message": ("TFSG-021", without_error_text),
    "one classification": ("TFSG-022", change_messages("Classify", lambda a: a.result.classifications.pop())),
    "one regression": ("TFSG-023", change_messages("Regress", lambda a: a.result.regressions.pop())),
    "another context": ("TFSG-024",
        change_messages("Regress", regressions_plus_one, lambda r: r.input.HasField("example_list_with_context"))),
    "no examples accepted": ("TFSG-025",
        accept_when(lambda r: not r.HasField("input"), "Classify", "ClassificationResponse")),
    "one task": ("TFSG-026", change_messages("MultiInference", lambda a: a.results.pop())),
}  # fmt: skip
FAULTS = faults_of("tensorflow-serving-grpc", "half_plus_two", CALL_FAULTS, "change_call")
