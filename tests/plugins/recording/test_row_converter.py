"""Conversion of inference events to rows."""

import hashlib
import json
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from app.plugins.recording.row_converter import REDACTED, Redaction, RowConverter
from metadata.request import METADATA_PARAMETER, metadata_values, read_metadata
from tasks.image_text_to_text import Answers, GenerationParameters, PromptedImage
from tasks.inference.error import ErrorKind
from tasks.inference.request import InferenceRequest
from tasks.inference.response import SampleResult
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


def test_event_is_converted_to_complete_row() -> None:
    event = detection_event(
        image_bytes=b"jpeg", metadata=CAMERA, parameters={"top_k": 3}, labels=("ship", "quay"), base_id="base"
    )
    (rows,) = converter()(event).rows
    row = rows.inference
    assert (row["id"], row["base_id"], row["request_id"]) == (f"{event.id}-0-0", "base", event.request_id)
    assert (row["protocol"], row["model"], row["version"], row["task_type"]) == (
        "kserve-v2",
        "detector",
        "1",
        "OBJECT_DETECTION",
    )
    assert (row["started"], row["duration"]) == (event.timestamp // 1000, 5000)
    assert json.loads(row["parameters"]) == {"top_k": 3}
    assert [(entry["key"], entry["value"]) for entry in json.loads(row["metadata"])] == [
        ("camera", "north"),
        ("latitude", 51.5),
        ("longitude", -0.1),
    ]
    assert row["records"] is not None
    assert [record["label"] for record in json.loads(row["records"])] == ["ship", "quay"]
    assert (row["latitude"], row["longitude"]) == (51.5, -0.1)
    assert row["image_digest"] == hashlib.sha256(b"jpeg").hexdigest()
    assert (row["image_width"], row["image_height"], row["image_size"], row["image_kept"]) == (640, 320, 4, False)
    assert (row["error"], row["message"], row["explanation"]) == (None, "", False)
    assert [label.label for label in rows.labels] == ["quay", "ship"]
    assert [entry.key for entry in rows.metadata] == ["camera", "latitude", "longitude"]


def test_each_datum_of_request_has_its_own_row() -> None:
    event = detection_event(sample_count=3)
    rows = converter()(event).rows
    assert [row.inference["id"] for row in rows] == [f"{event.id}-{index}-0" for index in range(3)]
    assert {row.inference["request_id"] for row in rows} == {event.request_id}


def test_metadata_is_recorded_with_its_input() -> None:
    event = detection_event(sample_count=2, metadata=CAMERA)
    request = event.request
    assert request is not None
    first = msgspec.structs.replace(request.inputs[0], parameters={})
    request = msgspec.structs.replace(request, inputs=(first, request.inputs[1]))
    event = msgspec.structs.replace(event, request=request, metadata=event.metadata[:1])
    without_metadata, with_metadata = converter()(event).rows
    assert without_metadata.metadata == []
    assert [entry.key for entry in with_metadata.metadata] == ["camera", "latitude", "longitude"]


def test_request_metadata_is_recorded_with_inputs_without_own_metadata() -> None:
    event = detection_event(sample_count=3)
    request = event.request
    assert request is not None
    own = {"metadata": '[{"key": "camera", "type": "str", "value": "south"}]'}
    second = msgspec.structs.replace(request.inputs[1], parameters=own)
    request = msgspec.structs.replace(
        request,
        inputs=(request.inputs[0], second, request.inputs[2]),
        parameters={"metadata": json.dumps(CAMERA), "top_k": 3},
    )
    entries = [read_metadata(value) for value in metadata_values(request)]
    assert len(entries) == 2
    rows = converter()(msgspec.structs.replace(event, request=request, metadata=entries)).rows
    assert [(row.metadata[0].key, row.metadata[0].tv) for row in rows] == [
        ("camera", "north"),
        ("camera", "south"),
        ("camera", "north"),
    ]
    assert [json.loads(row.inference["parameters"]) for row in rows] == [{"top_k": 3}] * 3


def test_row_of_several_tensors_has_metadata_of_all_tensors() -> None:
    event = detection_event()
    assert event.result is not None
    tensors = [
        Tensor(
            name=name,
            datatype=Datatype.FP32,
            data=np.zeros(1, np.float32),
            parameters={"metadata": json.dumps([{"key": name, "type": "int", "value": "1"}])},
        )
        for name in ("a", "b")
    ]
    request = InferenceRequest(id="", model_name="m", inputs=tuple(tensors))
    data = [msgspec.structs.replace(datum, item=TensorsInput({})) for datum in event.result.samples]
    result = msgspec.structs.replace(event.result, samples=data)
    entries = [read_metadata(value) for value in metadata_values(request)]
    (row,) = converter()(msgspec.structs.replace(event, request=request, result=result, metadata=entries)).rows
    assert [entry.key for entry in row.metadata] == ["a", "b"]


def test_conversation_without_images_is_recorded_without_an_image() -> None:
    event = detection_event()
    assert event.result is not None
    item = PromptedImage((), ("Why?",), GenerationParameters())
    answers = Answers(prompts=["Why?"], answers=["Because"])
    result = msgspec.structs.replace(
        event.result, samples=[SampleResult(input=0, index=0, item=item, prediction=answers)]
    )
    (row,) = converter()(msgspec.structs.replace(event, result=result)).rows
    assert json.loads(row.inference["records"] or "") == [{"prompt": "Why?", "answer": "Because"}]
    assert row.inference["image_digest"] is None


def test_rejected_request_is_one_row() -> None:
    event = rejected_event(ErrorKind.MODEL_NOT_FOUND, "Model 'x' is not known")
    (rows,) = converter()(event).rows
    assert (rows.inference["error"], rows.inference["message"]) == ("model_not_found", "Model 'x' is not known")
    assert (rows.inference["records"], rows.inference["image_digest"]) == (None, None)


def test_failed_request_is_recorded_with_metadata_and_without_records() -> None:
    event = detection_event(metadata=CAMERA, result=None, outcome=ErrorKind.MODEL_FAILED, error="The model failed")
    (rows,) = converter()(event).rows
    assert (rows.inference["records"], rows.inference["error"]) == (None, "model_failed")
    assert rows.inference["latitude"] == 51.5


def test_metadata_of_failed_request_is_not_in_parameters() -> None:
    event = detection_event(outcome=ErrorKind.MODEL_FAILED, error="it broke", result=None)
    assert event.request is not None
    request = msgspec.structs.replace(event.request, parameters={"metadata": '[{"key": "plate"}]', "x": 1})
    (row,) = converter()(msgspec.structs.replace(event, request=request)).rows
    assert json.loads(row.inference["parameters"]) == {"x": 1}


def test_records_of_broken_stream_are_stored_with_error() -> None:
    (rows,) = converter()(detection_event(outcome=ErrorKind.MODEL_FAILED, error="The model failed")).rows
    assert rows.inference["records"] is not None
    assert rows.inference["error"] == "model_failed"


def test_raw_pixels_have_digest_of_size_and_pixels() -> None:
    pixels = np.arange(4 * 2 * 3, dtype=np.uint8).reshape(2, 4, 3)
    event = detection_event(pixels=Image(pixels))
    request = event.request
    assert request is not None
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=pixels)
    event = msgspec.structs.replace(event, request=msgspec.structs.replace(request, inputs=(tensor,)))
    converted = converter(images=True)(event)
    row = converted.rows[0].inference
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
    event = detection_event(
        metadata=metadata,
        parameters={"owner": "Ada", "prompts": ["AB 12"]},
        outcome=ErrorKind.INVALID_REQUEST,
        error="inputs[0].parameters.prompts: Expected text, got 'AB 12'",
    )
    (rows,) = converter("camera", "plate", "OWNER", "prompts", "latitude", "label")(event).rows
    written = repr(rows)
    for secret in ("north", "AB 12", "Ada", "51.5", "quay"):
        assert secret not in written
    assert rows.inference["message"] == REDACTED
    assert (rows.inference["latitude"], rows.inference["longitude"]) == (None, None)


def test_redacted_scores_are_not_searchable() -> None:
    (rows,) = converter("score")(detection_event(labels=("ship", "quay"))).rows
    assert {(row.label, row.score) for row in rows.labels} == {("ship", None), ("quay", None)}


def test_metadata_is_not_in_recorded_parameters() -> None:
    (rows,) = converter()(detection_event(metadata=CAMERA, parameters={"a": msgspec.Raw(b'{"b":[1,2]}')})).rows
    assert METADATA_PARAMETER not in json.loads(rows.inference["parameters"])
    assert json.loads(rows.inference["parameters"]) == {"a": {"b": [1, 2]}}


@pytest.mark.parametrize("name", ["\0", "x\0y", "\N{PILE OF POO}" * 500])
def test_names_are_truncated_and_lose_null_characters(name: str) -> None:
    event = detection_event(model_name=name, base_id=name, labels=(name, "b", "c", "d", "e"), error=name)
    (rows,) = converter()(event).rows
    row = rows.inference
    for text in (row["model"], row["base_id"], row["message"], *(label.label for label in rows.labels)):
        assert text is not None
        assert "\0" not in text
    assert len(row["model"]) <= 400
