"""Test that errors about files of other frameworks say how to serve them."""

import re
from pathlib import Path

import msgspec
import pytest

from app.core.assembly.discovery import discover, model_at, models_in
from app.core.assembly.models import load
from app.core.settings.model import ModelError
from app.plugins.authoring.other_formats.advice import advice_for
from tests.support.servers.server_process import ROOT

PAGE = (ROOT / "docs" / "python_models.md").read_text()
FORMATS = [
    ("net.tflite", "a TFLite model", "#tflite"),
    ("net.ts", "TorchScript", "#torchscript"),
    ("net.torchscript", "TorchScript", "#torchscript"),
    ("net.pt", "#torchscript", "export the model to ONNX"),
    ("net.PTH", "#torchscript", "export the model to ONNX"),
    ("net.pt2", "a program of torch.export", "#torchexport"),
    ("net.joblib", "a joblib file", "#scikit-learn"),
    ("net.pkl", "a pickle", "#scikit-learn"),
    ("net.keras", "convert it to ONNX", "#recipes"),
    ("net.engine", "a TensorRT engine", "#recipes"),
]


@pytest.mark.parametrize(("name", "way", "link"), FORMATS)
def test_file_and_folder_are_rejected_with_the_way_to_serve_it(tmp_path: Path, name: str, way: str, link: str) -> None:
    file = tmp_path / "model" / name
    file.parent.mkdir()
    file.write_bytes(b"\x80weights")
    (source,) = model_at(file)
    with pytest.raises(ModelError, match=f"^{file} is ") as caught:
        load(source)
    assert way in str(caught.value)
    assert link in str(caught.value)
    for path in (file.parent, tmp_path):
        with pytest.raises(ModelError, match="expected") as caught:
            discover(path)
        assert name in str(caught.value)
        assert way in str(caught.value)


def test_file_for_a_runtime_is_rejected_with_the_way_to_serve_it(tmp_path: Path) -> None:
    (tmp_path / "net.tflite").write_bytes(b"weights")
    (tmp_path / "model-settings.json").write_text('{"runtime": "onnxruntime", "uri": "net.tflite"}')
    (source,) = model_at(tmp_path)
    with pytest.raises(ModelError, match="#tflite"):
        load(source)


@pytest.mark.parametrize("name", ["readme.md", "model.onnx", "config.json", "weights.safetensors"])
def test_other_files_get_no_advice(name: str) -> None:
    assert advice_for(Path(name)) == ""


def test_links_lead_to_headings_of_the_page() -> None:
    headings = {
        re.sub(r"[^a-z0-9 -]", "", heading.lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.*)$", PAGE, re.MULTILINE)
    }
    text = " ".join(advice_for(Path(name)) for name, _, _ in FORMATS)
    text += (ROOT / "app/core/runtimes/onnxruntime/layouts/choice.py").read_text()
    text += (ROOT / "app/plugins/transformers/torch/architecture.py").read_text()
    anchors = set(re.findall(r"docs/python_models\.md#([a-z-]+)", text))
    assert {"other-outputs", "transformers"} <= anchors
    assert anchors <= headings


def test_folder_with_a_class_and_no_settings_is_rejected_with_the_line_to_write(tmp_path: Path) -> None:
    folder = tmp_path / "boats"
    folder.mkdir()
    code = "class Helper:\n    pass\n\nclass Boats:\n{task}    def predict(self, image):\n        return []\n"
    (folder / "model.py").write_text(code.format(task=""))
    (folder / "boats.tflite").write_bytes(b"weights")
    line = '{"implementation": "model:Boats", "task_type": "OBJECT_DETECTION"} or another task type to '
    for find in (discover, model_at):
        with pytest.raises(ModelError) as caught:
            find(folder)
        assert f"{folder / 'model.py'} has a Python class, which needs a line" in str(caught.value)
        assert f"write {line}{folder / 'model-settings.json'}" in str(caught.value)
        assert "tflite" not in str(caught.value)
    with pytest.raises(ModelError, match=r'write \{"implementation": "model:Boats"'):
        models_in(tmp_path)
    (folder / "model.py").write_text(code.format(task='    task_type = "OBJECT_DETECTION"\n\n'))
    (folder / "model-settings.json").write_text("{}")
    (source,) = model_at(folder)
    with pytest.raises(ModelError, match=r'add \{"implementation": "model:Boats"\} to '):
        load(source)
    (folder / "model-settings.json").write_text('{"implementation": "model:Boats"}')
    (source,) = model_at(folder)
    load(msgspec.structs.replace(source, allow_code=True))


@pytest.mark.parametrize("code", ["class Net:\n    pass", "def predict(image): ...", "class Net(:", "\0", "(" * 5000])
def test_other_code_gets_no_advice(tmp_path: Path, code: str) -> None:
    (tmp_path / "model.py").write_text(code)
    assert advice_for(tmp_path / "model.py") == ""
