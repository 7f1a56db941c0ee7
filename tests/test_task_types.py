"""Take every task type through every part of the product: each supports it, or says clearly that it does not."""

import io
import json
import re
from collections.abc import Sequence
from contextlib import suppress
from html import unescape
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import pytest

from app.core.engine.models.servable import Servable
from app.core.hooks import Page
from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions
from app.core.wire.bytes_elements import BinaryElement, StringElement
from app.plugins.authoring.drawing.image import draw
from app.plugins.authoring.init import init
from app.plugins.authoring.predict import predict
from app.plugins.conformance.chariot.image_probe import FIELDS
from app.plugins.conformance.options import ConformanceOptions, OptionsError, open_runner
from app.plugins.drift.measurement import DriftInput, measure_images
from app.plugins.evaluation.answers import MEASURED_TASKS, infer_task
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.model import local_model
from app.plugins.explanations.explainer import explainer_of
from app.plugins.explanations.request import explain_request
from app.plugins.page.page_files import render_shell
from app.plugins.recording.export.coco import write_coco
from app.plugins.recording.inference import RecordedImage, RecordedInference
from tasks.inference.error import ErrorKind, InferenceError
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.response import Record
from tasks.inference.tensor import BytesTensor, Datatype, Tensor
from tasks.task import TaskType
from tests.support.data.images import encode_image, rectangle
from tests.support.models.fake_models import FAKE_MODELS
from tests.support.servers.apps import load_test_model, model_source

ROOT = Path(__file__).parents[1]
SCAFFOLD = ROOT / "app" / "plugins" / "authoring" / "scaffold"
MODELS = {TaskType.TENSOR: "echo-fp32"} | {task_type: name for name, (task_type, *_) in reversed(FAKE_MODELS.items())}
PIXELS = rectangle(64, 48)
OF_IMAGES = [task_type for task_type in TaskType if task_type.takes in ("image", "question")]

every_task_type = pytest.mark.parametrize("task_type", tuple(TaskType))
every_image_task_type = pytest.mark.parametrize("task_type", OF_IMAGES)


def load(task_type: TaskType) -> Servable:
    return load_test_model(model_source(MODELS[task_type]))


def request_for(task_type: TaskType) -> InferenceRequest:
    match task_type.takes:
        case "image" | "question":
            sample = BytesTensor(name="image", shape=(1,), elements=[BinaryElement(encode_image(PIXELS))])
        case "text":
            sample = BytesTensor(name="args", shape=(1,), elements=[StringElement("red and blue")])
        case "tensor":
            sample = Tensor(name="x", datatype=Datatype.FP32, data=np.ones((1, 2), np.float32))
    return InferenceRequest(id="walk", model_name="walk", inputs=(sample,))


def records_of(task_type: TaskType) -> Sequence[Record]:
    """Return what the stand-in of a task type answers: at least one record."""
    records = load(task_type).predict(request_for(task_type), Limits()).outputs[0].predictions[0].records()
    assert records
    return records


def json_of(records: Sequence[Record]) -> Any:
    return msgspec.json.decode(msgspec.json.encode(records))


def test_every_task_type_has_a_stand_in() -> None:
    assert set(MODELS) == set(TaskType)


@every_task_type
def test_geometry_is_that_of_the_records(task_type: TaskType) -> None:
    geometry_fields = {"box": "xmin", "oriented": "cx", "contour": "contour"}
    fields = records_of(task_type)[0].__struct_fields__
    assert [field for field in geometry_fields.values() if field in fields] == (
        [geometry_fields[task_type.geometry]] if task_type.geometry else []
    )
    assert task_type.returns != "classes" or fields == ("label", "score")
    # The page, metrics, drift and explanations read both.
    assert task_type.takes != "image" or {"label", "score"} <= set(fields)


@every_task_type
def test_starter_model_predicts_and_draws(task_type: TaskType, tmp_path: Path, capsys: Any) -> None:
    folder, image, output = tmp_path / "model", tmp_path / "image.png", tmp_path / "out.png"
    image.write_bytes(encode_image(PIXELS))
    if not (SCAFFOLD / task_type.lower()).is_dir():
        with pytest.raises(ModelError, match=r"--task: Expected one of .* got"):
            init("model", task=task_type, directory=folder)
        return
    init("model", task=task_type, directory=folder)
    options = ModelOptions(model=folder, allow_code=True)
    if task_type not in OF_IMAGES:
        with pytest.raises(ModelError, match=f"predict sends an image; a model of {task_type} takes a"):
            predict(image, draw=output, options=options)
        return
    predict(image, draw=output, options=options)
    assert cv2.imread(str(output)) is not None
    assert "found" in capsys.readouterr().out


@every_image_task_type
def test_records_are_drawn(task_type: TaskType) -> None:
    drawn = draw(PIXELS, records_of(task_type), task_type.geometry)
    assert drawn.shape == PIXELS.shape
    assert (drawn != PIXELS).any()


@every_task_type
def test_page_knows_the_task_type(task_type: TaskType) -> None:
    attribute = re.search(r'data-tasks="([^"]+)"', render_shell({"page": Page()}, ()).content.decode())
    assert attribute is not None
    declared = json.loads(unescape(attribute[1]))[task_type]
    assert declared == {"takes": task_type.takes, "returns": task_type.returns, "geometry": task_type.geometry}


@every_task_type
def test_coco_export_has_every_shape(task_type: TaskType) -> None:
    records = json_of(records_of(task_type))
    recorded = RecordedInference(
        id="a", protocol="kserve-v2", model="m", started=0, duration=1, task_type=str(task_type), records=records,
        metadata=[], image=RecordedImage(digest="ab" * 32, width=64, height=48, size=1),
    )  # fmt: skip
    file = io.BytesIO()
    file.name = "walk.json"
    exported = write_coco([[recorded]], file)
    assert exported.left_out == (task_type.geometry is None)
    assert len(json.loads(file.getvalue())["annotations"]) == (len(records) if task_type.geometry else 0)


@every_task_type
def test_evaluation_measures_the_task_type_or_says_no(task_type: TaskType, tmp_path: Path) -> None:
    records = json_of(records_of(task_type))
    if task_type in MEASURED_TASKS:
        inferred = infer_task(records)
        assert inferred is not None
        assert (inferred.returns, inferred.geometry) == (task_type.returns, task_type.geometry)
        return
    # Over the wire, records with the fields of another task are taken for records of that task.
    with suppress(ValueError):
        assert infer_task(records) in MEASURED_TASKS
    if (SCAFFOLD / task_type.lower()).is_dir():
        init("model", task=task_type, directory=tmp_path / "model")
        source = local_model(ModelOptions(model=tmp_path / "model", allow_code=True), None, {})
        with (
            pytest.raises(EvaluationError, match=f"is a model of {task_type}; an evaluation measures"),
            source.open_predictor(),
        ):
            pass


@every_task_type
def test_model_is_explained_or_says_no(task_type: TaskType) -> None:
    servable = load(task_type)
    request = msgspec.structs.replace(request_for(task_type), parameters={"samples": 16})
    assert explainer_of(servable) == task_type.explains
    if explainer_of(servable):
        assert explain_request(servable, request, Limits(), lambda: True).explanations[0]
        return
    with pytest.raises(InferenceError, match="explanations of texts need a model that explains itself") as caught:
        explain_request(servable, request, Limits(), lambda: True)
    assert caught.value.kind is ErrorKind.UNSUPPORTED


@every_task_type
def test_conformance_checker_has_the_same_fields_or_says_no(task_type: TaskType) -> None:
    if task_type in FIELDS:
        assert tuple(FIELDS[task_type]) == records_of(task_type)[0].__struct_fields__
        return
    with (
        pytest.raises(OptionsError, match="--task-type: Expected one of"),
        open_runner("http://127.0.0.1:1", ConformanceOptions(task_type=task_type)),
    ):
        pass


@every_task_type
def test_drift_counts_scores_of_scored_tasks(task_type: TaskType) -> None:
    sample = DriftInput(id="a", image=None, records=json_of(records_of(task_type)))
    (observation,) = measure_images([sample], task_type, None)
    assert (observation.findings is None) == (task_type.returns in ("texts", "tensors"))


@every_task_type
def test_documentation_lists_the_fields(task_type: TaskType) -> None:
    row = re.search(rf"\| `{task_type}` \| `([\w, ]+)`", (ROOT / "docs/models.md").read_text())
    assert row is not None
    assert tuple(row[1].split(", ")) == records_of(task_type)[0].__struct_fields__
