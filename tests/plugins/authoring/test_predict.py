"""`charioteer predict` on a terminal."""

import json
from pathlib import Path

import numpy as np
import pytest

from app.core.settings.model import ModelError
from app.core.settings.server import ModelOptions
from app.plugins.authoring.predict import predict
from tasks.vision.image import decode_image
from tests.core.runtimes.onnxruntime.test_tensor_graphs import IMAGES, PILLOW, assert_close, embedder, expected
from tests.support.command_line import charioteer, output_of
from tests.support.servers.server_process import ROOT

pytestmark = pytest.mark.slow

MODEL = "fixtures/models/detector"


def test_prints_of_a_model_are_no_part_of_the_results(tmp_path: Path) -> None:
    method = "    def predict(self, image):\n        print('called')\n        return {'a': 0.5}\n"
    (tmp_path / "model.py").write_text(f"print('imported')\nclass Model:\n{method}")
    settings = {"implementation": "model:Model", "task_type": "IMAGE_CLASSIFICATION"}
    (tmp_path / "model-settings.json").write_text(json.dumps(settings))
    done = charioteer("predict", "fixtures/images/scene.jpg", "--model", tmp_path, "--allow-code", "--json")
    assert json.loads(done.stdout)[0]["label"] == "a"
    assert done.stderr.startswith("imported\ncalled\n")


def test_predict_prints_the_tensors_of_an_image(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    image = tmp_path / "image.png"
    image.write_bytes(IMAGES[0])
    embedder(tmp_path / "model", 1)
    settings = json.dumps({"task_type": "TENSOR", "preprocessing": PILLOW})
    (tmp_path / "model" / "model-settings.json").write_text(settings)
    options = ModelOptions(model=tmp_path / "model")
    predict(image, json=True, options=options)
    records = json.loads(capsys.readouterr().out)
    for record in records:
        assert_close(record["name"], record["data"], expected(IMAGES[0]), record["shape"])
    predict(image, options=options)
    assert "embedding" in capsys.readouterr().out
    with pytest.raises(ModelError, match="--draw cannot draw the tensors"):
        predict(image, draw=tmp_path / "out.png", options=options)


def test_objects_that_an_answer_locates_have_a_table_and_are_drawn(tmp_path: Path) -> None:
    image, drawn = ROOT / "fixtures" / "images" / "shape.jpg", tmp_path / "drawn.png"
    arguments = ("--model", "fixtures/models/vlm", "--prompt", "Where is the blue star?", "--draw", drawn)
    printed = output_of("predict", image, *arguments)
    assert "vlm: 1 located" in printed
    assert "Grounding" not in printed
    _, _, right, bottom = json.loads((image.parent / "truth.json").read_text())[image.name][0]["box"]
    pixels = decode_image(drawn.read_bytes()).pixels
    changed = np.argwhere((pixels.astype(int) - decode_image(image.read_bytes()).pixels).any(axis=-1))
    assert np.allclose(changed.max(axis=0), (bottom, right), atol=12)


def test_errors_name_the_file_or_the_option(tmp_path: Path) -> None:
    arguments = ("predict", ROOT / "fixtures" / "images" / "scene.jpg", "--model", MODEL)
    (damaged := tmp_path / "cut.jpg").write_bytes(arguments[1].read_bytes()[:3000])
    assert "charioteer: cut.jpg: The image cannot be decoded" in output_of("predict", damaged, *arguments[2:], status=1)
    assert "charioteer: --top-k: Expected `int` >= 1" in output_of(*arguments, "--top-k", 0, status=1)
