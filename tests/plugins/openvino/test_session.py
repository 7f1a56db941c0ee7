"""Compare the answers of OpenVINO with those of ONNX Runtime, for the same models."""

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from numpy.typing import NDArray
from onnx import helper
from PIL import Image

from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import SETTINGS_FILE, ModelError
from app.plugins.openvino.session import OpenVinoSession
from app.plugins.openvino.settings import OpenVinoOptions
from app.public_api.in_process import InProcessModel
from tasks.inference.error import ErrorKind, InferenceError
from tests.core.runtimes.onnxruntime import graphs
from tests.support.servers.server_process import ROOT

pytestmark = pytest.mark.slow

MODELS = ROOT / "fixtures" / "models"
IMAGES = [
    np.asarray(Image.open(ROOT / "fixtures" / "images" / f"{name}.jpg")) for name in ("oriented", "photo", "scene")
]


def model_with(folder: Path, name: str, **settings: object) -> InProcessModel:
    copy = shutil.copytree(MODELS / name, folder / name, dirs_exist_ok=True)
    (copy / SETTINGS_FILE).write_text(json.dumps(settings))
    return InProcessModel(copy)


def numbers(model: InProcessModel, images: Sequence[NDArray[Any]]) -> list[float]:
    """Return every number in the answers for one batch."""
    text = msgspec.json.encode([prediction.records() for prediction in model.predict(images)])
    return [float(number) for number in re.findall(rb"-?\d+\.?\d*(?:e-?\d+)?", text)]


@pytest.mark.parametrize(
    ("name", "isolate"),
    [("classifier", False), ("detector", True), ("oriented-detector", False), ("segmenter", False)],
)
@pytest.mark.verifies("trained fixture models, also on OpenVINO", "classify", "ultralytics")
def test_fp32_answers_equal_those_of_onnxruntime(tmp_path: Path, name: str, isolate: bool) -> None:
    expected = model_with(tmp_path, name)
    model = model_with(tmp_path, name, runtime="openvino", isolate=isolate)
    # One image has the shape that is compiled statically, three have another one.
    batches = (IMAGES[:1], IMAGES[:3], IMAGES[2:3])
    answers = [numbers(expected, images) for images in batches]
    assert sum(map(len, answers)) > 10
    for images, expected_numbers in zip(batches, answers, strict=True):
        assert numbers(model, images) == pytest.approx(expected_numbers, rel=1e-4, abs=1e-4)


def test_tensors_equal_those_of_onnxruntime(tmp_path: Path) -> None:
    model = model_with(tmp_path, "half_plus_two", runtime="openvino")
    for values in ([1.0, 2.0, 5.0], [4.0], [4.0, 8.0, 10.0]):
        assert model.run({"x": np.array(values, np.float32)})["y"].tolist() == [value / 2 + 2 for value in values]


def test_precision_is_fp32_unless_settings_say_otherwise(tmp_path: Path) -> None:
    facts = {fact.topic: fact.value for fact in model_with(tmp_path, "detector", runtime="openvino").description.facts}
    assert facts["precision"] == "fp32"
    assert facts["runtime"].startswith("OpenVINO 20")
    exact = numbers(model_with(tmp_path, "detector"), IMAGES[2:3])
    reduced = model_with(tmp_path, "detector", runtime="openvino", precision="bf16")
    assert {fact.topic: fact.value for fact in reduced.description.facts}["precision"].startswith("bf16")
    # Processors without bf16 compute in fp32.
    assert numbers(reduced, IMAGES[2:3]) == pytest.approx(exact, rel=0.05, abs=2)


def test_threads_get_their_own_answers(tmp_path: Path) -> None:
    session = OpenVinoSession(graphs.source(graphs.channel_means(tmp_path / "model.onnx"), runtime="openvino"))

    def means(value: int) -> float:
        shape = (1 + value % 3, 3, 8, 8)
        (output,) = session.run({"images": np.full(shape, value, np.float32)})
        assert output.shape == (shape[0], 3)
        return float(output[0, 0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(means, range(400))) == pytest.approx(list(range(400)))


def test_outputs_stay_unchanged_and_metadata_equal_those_of_onnxruntime(tmp_path: Path) -> None:
    file = graphs.channel_means(tmp_path / "model.onnx", properties={"task": "classify"})
    session, expected = OpenVinoSession(graphs.source(file)), Session(file)
    assert (session.inputs, session.outputs, session.metadata) == (expected.inputs, expected.outputs, expected.metadata)
    (first,) = session.run({"images": np.zeros((1, 3, 8, 8), np.float32)})
    session.run({"images": np.ones((1, 3, 8, 8), np.float32)})
    assert first.tolist() == [[0, 0, 0]]


def test_wrong_shape_is_model_failure_in_one_line(tmp_path: Path) -> None:
    session = OpenVinoSession(graphs.source(graphs.channel_means(tmp_path / "model.onnx")))
    for _ in range(2):
        with pytest.raises(InferenceError, match=r"The model failed: .*9.9") as caught:
            session.run({"images": np.zeros((1, 3, 9, 9), np.float32)})
        assert caught.value.kind is ErrorKind.MODEL_FAILED
        assert "\n" not in caught.value.message
    assert session.run({"images": np.ones((1, 3, 8, 8), np.float32)})[0].tolist() == [[1, 1, 1]]


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("detector", {"openvino": {"device": "gpu:7"}}, "openvino.device: OpenVINO finds no gpu:7 .* only .*cpu"),
        ("greeter", {}, "the runtime openvino does not support BYTES, as in 'text'"),
        ("vlm", {}, "no .onnx file|several models"),
    ],
)
def test_unsupported_models_and_devices_are_rejected(
    tmp_path: Path, name: str, settings: dict[str, object], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        model_with(tmp_path, name, runtime="openvino", **settings)


def test_operator_that_openvino_lacks_is_named(tmp_path: Path) -> None:
    node = helper.make_node("Det", ["images"], ["output0"])
    file = graphs.write(tmp_path / "model.onnx", [node], {"output0": ["batch", 3]})
    with pytest.raises(ModelError, match=r"model\.onnx cannot be loaded by OpenVINO: .* operations: Det-17$"):
        OpenVinoSession(graphs.source(file))


def test_order_of_inputs_does_not_select_the_graph_for_usual_shapes(tmp_path: Path) -> None:
    text = """(float[n] a, float[m] b) => (float total) {
        first = ReduceSum<keepdims = 0>(a) second = ReduceSum<keepdims = 0>(b) total = Add(first, second)
    }"""
    session = OpenVinoSession(graphs.source(graphs.parse(tmp_path / "model.onnx", text), runtime="openvino"))
    two, three = np.ones(2, np.float32), np.ones(3, np.float32)
    for feeds in ({"a": two, "b": three}, {"b": two, "a": three}):
        assert session.run(feeds)[0] == 5


def test_compiled_graphs_are_kept_and_streams_are_those_of_the_settings(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    source = graphs.source(graphs.channel_means(tmp_path / "model.onnx"), openvino={"streams": 3, "threads": 2})
    options = (OpenVinoOptions(compile_cache=tmp_path / "cache"),)
    session = OpenVinoSession(msgspec.structs.replace(source, options=options))
    assert list((tmp_path / "cache").iterdir())
    assert "3, threads of a call: 2" in [fact.value for fact in session.facts]


def test_telemetry_is_not_imported() -> None:
    program = f"""
import sys
from pathlib import Path
from app.plugins.openvino.session import OpenVinoSession
from app.core.settings.model import ModelSource
OpenVinoSession(ModelSource(name="m", version="1", folder=Path({str(MODELS / "classifier")!r})))
print([name for name, module in sys.modules.items() if "openvino_telemetry" in name and module])
"""
    process = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert process.stdout.strip() == "[]"
