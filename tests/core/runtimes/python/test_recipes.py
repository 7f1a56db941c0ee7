"""Run the recipes of the documentation unchanged, on tiny models with known answers."""

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from tests.core.runtimes.onnxruntime import graphs
from tests.support.data.library_answers import LibraryModel
from tests.support.models import tiny_readers
from tests.support.models.model_folders import write_and_load, write_model
from tests.support.servers.client_environments import python_with
from tests.support.servers.server_process import ROOT

PAGE = (ROOT / "docs" / "python_models.md").read_text()
LABELS = ["red", "green", "blue"]
RED = np.full((20, 30, 3), (255, 0, 51), np.uint8)

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")]


def recipe(heading: str) -> str:
    """Return the code under a heading of the page."""
    found = re.search(rf"^### {re.escape(heading)}$.*?^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found, heading
    return found[1]


def means_module() -> Any:
    """Return a torch module that computes the mean of each channel."""
    import torch

    class Means(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return x.mean(dim=(2, 3))

    return Means().eval()


def save_sklearn(file: Path) -> None:
    """Train a classifier by colour, and save it as scikit-learn's users do."""
    joblib, linear_model = importlib.import_module("joblib"), importlib.import_module("sklearn.linear_model")
    colours = np.repeat(np.random.default_rng(0).uniform(0, 1, (60, 1, 3)), 24 * 24, axis=1).reshape(60, -1)
    joblib.dump(linear_model.LogisticRegression().fit(colours, np.array(LABELS)[colours[:, :3].argmax(axis=1)]), file)


def save_torchscript(file: Path) -> None:
    import torch

    torch.jit.save(torch.jit.trace(means_module(), torch.zeros(1, 3, 24, 24)), file)


@pytest.mark.parametrize(
    ("heading", "save"),
    [
        ("scikit-learn", save_sklearn),
        ("TorchScript", save_torchscript),
        ("Other outputs", lambda file: graphs.channel_means(file, shape=("batch", 3, 24, 24))),
    ],
)
def test_recipe_answers_with_a_model_of_the_framework(
    tmp_path: Path, heading: str, save: Callable[[Path], object]
) -> None:
    save(tmp_path / "weights.file")
    labels = None if heading == "scikit-learn" else LABELS
    arguments = {"weights": "weights.file", "size": 24}
    model = write_and_load(tmp_path, recipe(heading), task_type=None, labels=labels, arguments=arguments)
    records = msgspec.to_builtins(model.ask(RED))
    assert [records[0]["label"], len(records)] == ["red", 3]


def test_torch_export_recipe_works(tmp_path: Path) -> None:
    import torch

    # torch.export would treat a batch size of one as a constant.
    example: Any = torch.zeros(2, 3, 8, 8)
    exported = torch.export.export(means_module(), (example,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    torch.export.save(exported, tmp_path / "net.pt2")
    arguments = {"weights": "net.pt2", "size": 8}
    model = write_and_load(tmp_path, recipe("torch.export"), task_type=None, labels=LABELS, arguments=arguments)
    probabilities = np.exp([1, 0, 0.2]) / np.exp([1, 0, 0.2]).sum()
    scores = {record["label"]: record["score"] for record in msgspec.to_builtins(model.ask(RED))}
    assert scores == pytest.approx(dict(zip(LABELS, probabilities.tolist(), strict=True)), abs=1e-5)


MAKE_TFLITE = """
import sys
import flatbuffers
import numpy as np
from ai_edge_litert import schema_py_generated as schema

def made(kind, **values):
    table = getattr(schema, kind + "T")()
    vars(table).update(values)
    return table

def tensor(name, shape, buffer, kind=schema.TensorType.FLOAT32):
    return made("Tensor", name=name, shape=shape, type=kind, buffer=buffer)

def data(array):
    return made("Buffer", data=np.frombuffer(array.tobytes(), np.uint8))

def code(kind):
    return made("OperatorCode", builtinCode=kind, deprecatedBuiltinCode=kind, version=1)

def operator(index, inputs, outputs, kind):
    options = getattr(schema.BuiltinOptions, kind + "Options")
    table = made(kind + "Options")
    return made(
        "Operator", opcodeIndex=index, inputs=inputs, outputs=outputs, builtinOptionsType=options, builtinOptions=table
    )

def save(tensors, outputs, operators, *buffers):
    graph = made("SubGraph", tensors=tensors, inputs=[0], outputs=outputs, operators=operators)
    codes = [code(schema.BuiltinOperator.MEAN), code(schema.BuiltinOperator.ADD)]
    buffers = [made("Buffer"), *map(data, buffers)]
    builder = flatbuffers.Builder(1024)
    model = made("Model", version=3, operatorCodes=codes, buffers=buffers, subgraphs=[graph])
    builder.Finish(model.Pack(builder), b"TFL3")
    open(sys.argv[1], "wb").write(bytes(builder.Output()))
"""
MAKE_MEANS = """
image, axes = tensor("image", [1, 8, 8, 3], 0), tensor("axes", [2], 1, schema.TensorType.INT32)
save([image, axes, tensor("y", [1, 3], 0)], [2], [operator(0, [0, 1], [2], "Reducer")], np.array([1, 2], np.int32))
"""
MAKE_FACES = """
# The mean of a grey image is 0, so that the outputs are constant.
rows, logits = np.zeros((1, 896, 16), np.float32), np.full((1, 896, 1), -20, np.float32)
rows[0, 35, :6], logits[0, 35] = [2, -2, 10, 20, 1, 1], 3
tensors = [
    tensor("image", [1, 128, 128, 3], 0), tensor("axes", [3], 1, schema.TensorType.INT32), tensor("mean", [1], 0),
    tensor("rows", [1, 896, 16], 2), tensor("logits", [1, 896, 1], 3),
    tensor("Identity", [1, 896, 16], 0), tensor("Identity_1", [1, 896, 1], 0),
]
operators = [operator(0, [0, 1], [2], "Reducer"), operator(1, [3, 2], [5], "Add"), operator(1, [4, 2], [6], "Add")]
save(tensors, [6, 5], operators, np.array([1, 2, 3], np.int32), rows, logits)
"""

RUN_TFLITE = """
import json, sys
from pathlib import Path
import msgspec, numpy as np
sys.path.append(sys.argv[1])
from charioteer import InProcessModel
model, colour = InProcessModel(Path(sys.argv[2]), allow_code=True), json.loads(sys.argv[3])
print(json.dumps(msgspec.to_builtins(model.ask(np.full((256, 256, 3), colour, np.uint8)))))
"""


def run_with_tflite(make: str, file: Path, folder: Path, prepare: Callable[[], object], *colour: int) -> Any:
    """Make a file with TFLite's package, prepare the model in `folder`, and return its answer for one colour."""
    python = python_with("litert")
    subprocess.run([str(python), "-c", MAKE_TFLITE + make, str(file)], check=True, capture_output=True)
    prepare()
    (packages,) = python.parents[1].glob("lib/python*/site-packages")
    command = [sys.executable, "-c", RUN_TFLITE, str(packages), str(folder), json.dumps(colour)]
    process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def test_tflite_recipe_of_detectors_decodes_faces_of_mediapipe(tmp_path: Path) -> None:
    file, folder = tmp_path / "faces.tflite", tmp_path / "faces"

    def prepare() -> None:
        write_model(folder, recipe("Detectors and segmenters"), arguments={"weights": str(file)})

    (face,) = run_with_tflite(MAKE_FACES, file, folder, prepare, 128, 128, 128)
    assert face.pop("label") == "face"
    assert face.pop("keypoints")[0] == pytest.approx([26, 26], abs=0.1)
    # Anchor 35 has its centre at 12, 12 in 128 pixels.
    assert face == pytest.approx({"score": 0.9526, "xmin": 18, "ymin": 0, "xmax": 38, "ymax": 40}, abs=0.1)


def test_tflite_recipe_works(tmp_path: Path) -> None:
    def prepare() -> None:
        arguments = {"weights": "net.tflite"}
        write_model(tmp_path, recipe("TFLite"), task_type=None, labels=LABELS, arguments=arguments)

    found = run_with_tflite(MAKE_MEANS, tmp_path / "net.tflite", tmp_path, prepare, *RED[0, 0].tolist())
    assert {record["label"]: record["score"] for record in found} == pytest.approx(
        {"red": 1, "green": 0, "blue": 0.2}, abs=1e-5
    )


def test_transformers_recipe_works(tmp_path: Path) -> None:
    library = LibraryModel(tiny_readers.florence2(tmp_path / "weights"))
    model = write_and_load(tmp_path, recipe("Transformers"), task_type=None)
    inputs = library.inputs([RED], "<CAPTION>")
    expected = library.tokenizer.decode(library.generate(inputs, 8), skip_special_tokens=True)
    found = msgspec.to_builtins(model.ask(RED, prompts=["<CAPTION>"], max_new_tokens=8))
    assert found == [{"prompt": "<CAPTION>", "answer": expected}]


def test_first_class_of_documentation_works(tmp_path: Path) -> None:
    found = re.search(r"^```python\n(import numpy.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert found
    image = np.zeros((48, 64, 3), np.uint8)
    image[8:40, 10:30] = 255
    (box,) = msgspec.to_builtins(write_and_load(tmp_path / "m", found[1]).ask(image))
    assert box == {"label": "bright", "score": 0.9, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 40}
