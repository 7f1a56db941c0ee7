"""Conversion of inference events to rows, and redaction of values that must not be recorded."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from app.plugins.recording.row_converter import REDACTED, Redaction, RowConverter
from app.plugins.recording.stores.rows import Rows, decode_entries
from metadata.request import MetadataEntry
from tasks.image_text_to_text import Answers, GenerationParameters, PromptedImage
from tasks.inference.error import ErrorKind
from tasks.inference.request import InferenceRequest
from tasks.inference.response import InferenceResult, SampleResult
from tasks.inference.tensor import Datatype, Tensor
from tasks.tensor_inference import TensorsInput
from tasks.vision.image import Image
from tests.support.data.inference_events import detection_event, rejected_event

CAMERA = [
    {"key": "camera", "type": "str", "value": "north"},
    {"key": "latitude", "type": "float", "value": "51.5"},
    {"key": "longitude", "type": "float", "value": "-0.1"},
]


def converter(*redacted: str, images: bool = False) -> RowConverter:
    return RowConverter(Redaction(redacted), keep_images=images)


def entries_of(row: Rows) -> Sequence[MetadataEntry]:
    return decode_entries(row.metadata)


def test_event_is_converted_to_complete_row() -> None:
    parameters = {"top_k": 3, "a": msgspec.Raw(b'{"b":[1,2]}')}
    event = detection_event(
        image_bytes=b"jpeg", metadata=CAMERA, parameters=parameters, labels=("ship", "quay"), base_id="base"
    )
    (rows,) = converter()(event).rows
    row = dict(rows.recording)
    assert json.loads(row.pop("parameters")) == {"top_k": 3, "a": {"b": [1, 2]}}
    assert [(entry.key, entry.type, entry.value) for entry in entries_of(rows)] == [
        ("camera", "str", "north"), ("latitude", "float", 51.5), ("longitude", "float", -0.1)
    ]  # fmt: skip
    assert [record["label"] for record in json.loads(row.pop("records"))] == ["ship", "quay"]
    assert row == {
        "id": f"{event.id}-0-0", "base_id": "base", "request_id": event.request_id, "input": 0, "datum": 0,
        "protocol": "kserve-v2", "model": "detector", "version": "1", "task_type": "OBJECT_DETECTION",
        "started": event.timestamp // 1000, "duration": 5000, "error": None, "message": "", "explanation": False,
        "image_digest": hashlib.sha256(b"jpeg").hexdigest(), "image_width": 640, "image_height": 320, "image_size": 4,
        "image_kept": False, "selection": '{"reason":null,"probability":1.0}', "truth": None, "shadow": None,
    }  # fmt: skip
    assert [*rows.labels] == ["quay", "ship"]


def test_each_sample_has_its_own_row_with_metadata_of_its_input_or_else_of_the_request() -> None:
    event = detection_event(sample_count=3)
    assert event.request is not None
    own = {"metadata": '[{"key": "camera", "type": "str", "value": "south"}]'}
    first, second, third = event.request.inputs
    inputs = first, msgspec.structs.replace(second, parameters=own), third
    shared = {"metadata": json.dumps(CAMERA), "top_k": 3}
    request = msgspec.structs.replace(event.request, inputs=inputs, parameters=shared)
    rows = converter()(msgspec.structs.replace(event, request=request)).rows
    assert [row.recording["id"] for row in rows] == [f"{event.id}-{index}-0" for index in range(3)]
    assert [entries_of(row)[0].value for row in rows] == ["north", "south", "north"]
    assert [json.loads(row.recording["parameters"]) for row in rows] == [{"top_k": 3}] * 3
    # Without metadata of the request, an input without its own has none.
    request = msgspec.structs.replace(request, parameters={})
    rows = converter()(msgspec.structs.replace(event, request=request)).rows
    assert [len(entries_of(row)) for row in rows] == [0, 1, 0]


def test_row_of_several_tensors_has_metadata_of_all_tensors() -> None:
    event = detection_event()
    assert event.result is not None
    metadata = {name: {"metadata": json.dumps([{"key": name, "type": "int", "value": "1"}])} for name in "ab"}
    kind: dict[str, Any] = {"datatype": Datatype.FP32, "data": np.zeros(1, np.float32)}
    tensors = tuple(Tensor(name=name, parameters=value, **kind) for name, value in metadata.items())
    request = InferenceRequest(id="", model_name="m", inputs=tensors)
    samples = [msgspec.structs.replace(sample, item=TensorsInput({})) for sample in event.result.samples]
    result = msgspec.structs.replace(event.result, samples=samples)
    (row,) = converter()(msgspec.structs.replace(event, request=request, result=result)).rows
    assert [entry.key for entry in entries_of(row)] == ["a", "b"]


def test_conversation_without_images_is_recorded_without_an_image() -> None:
    item = PromptedImage((), ("Why?",), GenerationParameters())
    answers = Answers(prompts=["Why?"], answers=["Because"])
    sample = SampleResult(input=0, index=0, item=item, prediction=answers)
    (row,) = converter()(detection_event(result=InferenceResult(outputs=(), batch_size=1, samples=[sample]))).rows
    assert json.loads(row.recording["records"] or "") == [{"prompt": "Why?", "answer": "Because"}]
    assert row.recording["image_digest"] is None


def test_rejected_request_is_one_row() -> None:
    (rows,) = converter()(rejected_event(ErrorKind.MODEL_NOT_FOUND, "Model 'x' is not known")).rows
    assert (rows.recording["error"], rows.recording["message"]) == ("model_not_found", "Model 'x' is not known")
    assert (rows.recording["records"], rows.recording["image_digest"]) == (None, None)


def test_failed_request_is_recorded_with_metadata_and_with_the_records_of_a_broken_stream() -> None:
    event = detection_event(metadata=CAMERA, outcome=ErrorKind.MODEL_FAILED, error="The model failed")
    assert event.request is not None
    parameters = {"metadata": '[{"key": "plate"}]', "x": 1}
    event.request = msgspec.structs.replace(event.request, parameters=parameters)
    for has_records, changed in ((True, event), (False, msgspec.structs.replace(event, result=None))):
        (rows,) = converter()(changed).rows
        assert (rows.recording["records"] is not None) == has_records
        assert rows.recording["error"] == "model_failed"
        assert entries_of(rows)[0].value == "north"
        assert json.loads(rows.recording["parameters"]) == {"x": 1}


def test_raw_pixels_have_digest_of_size_and_pixels() -> None:
    pixels = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(2, 4, 3)
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=pixels)
    request = InferenceRequest(id="", model_name="detector", inputs=(tensor,))
    converted = converter(images=True)(detection_event(pixels=Image(pixels), request=request))
    row = converted.rows[0].recording
    assert row["image_digest"] == hashlib.sha256(b"4x2\n" + pixels.tobytes()).hexdigest()
    assert (row["image_width"], row["image_height"], row["image_size"], row["image_kept"]) == (4, 2, 24, True)
    (file,) = converted.images
    assert file.digest == row["image_digest"]
    decoded: Any = cv2.imdecode(np.frombuffer(file.data, np.uint8), cv2.IMREAD_COLOR_RGB)
    assert np.array_equal(decoded, pixels)


def test_repeated_image_is_stored_once() -> None:
    (file,) = converter(images=True)(detection_event(sample_count=3, image_bytes=b"jpeg")).images
    assert (file.digest, file.data) == (hashlib.sha256(b"jpeg").hexdigest(), b"jpeg")
    assert converter()(detection_event()).images == []


def test_redacted_values_appear_in_no_column() -> None:
    metadata = [*CAMERA, {"key": "car", "type": "dict", "value": json.dumps({"plate": "AB 12"})}]
    error = "inputs[0].parameters.prompts: Expected text, got 'AB 12'"
    failure: dict[str, Any] = {"outcome": ErrorKind.INVALID_REQUEST, "error": error}
    parameters = {"owner": "Ada", "prompts": ["AB 12"], "raw": msgspec.Raw(b'{"pose": [{"Plate": "AB 12"}]}')}
    event = detection_event(metadata=metadata, parameters=parameters, **failure)
    (rows,) = converter("camera", "plate", "OWNER", "prompts", "latitude", "label")(event).rows
    written = repr(rows)
    for secret in ("north", "AB 12", "Ada", "51.5", "quay"):
        assert secret not in written
    assert rows.recording["message"] == REDACTED


def test_redacted_scores_are_not_searchable() -> None:
    (rows,) = converter("score")(detection_event(labels=("ship", "quay"))).rows
    assert rows.labels == {"ship": None, "quay": None}


@pytest.mark.parametrize("name", ["\0", "x\0y", "\N{PILE OF POO}" * 500])
def test_names_are_truncated_and_lose_null_characters(name: str) -> None:
    event = detection_event(model_name=name, base_id=name, labels=(name, "b", "c", "d", "e"), error=name)
    (rows,) = converter()(event).rows
    row = rows.recording
    for text in (row["model"], row["base_id"], row["message"], *rows.labels):
        assert text is not None
        assert "\0" not in text
    assert len(row["model"]) <= 400


def test_redacted_entry_loses_its_value_and_type() -> None:
    entries = [MetadataEntry("plate", "int", 42), MetadataEntry("car", "dict", {"plate": "AB", "doors": 5})]
    assert Redaction(["plate"]).entries(entries) == [
        MetadataEntry("plate", "str", REDACTED),
        MetadataEntry("car", "dict", {"plate": REDACTED, "doors": 5}),
    ]


def test_value_too_deep_to_search_is_replaced() -> None:
    deep: object = {"plate": "AB 12"}
    for _ in range(900):
        deep = {"a": [deep]}
    redacted = str(Redaction(["plate"]).value(deep))
    assert REDACTED in redacted
    assert "AB 12" not in redacted
