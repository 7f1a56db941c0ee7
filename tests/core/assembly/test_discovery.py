"""Discovery of models by path. Only names matter here, so the files are empty."""

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest

from app.core.assembly.discovery import discover, model_at, models_in
from app.core.assembly.models import describe, find_models, load
from app.core.settings.model import ModelError, ModelSource
from app.core.settings.server import DEMO_MODELS, ModelOptions


def create_files(root: Path, *files: str, settings: str = "{}") -> None:
    """Create empty files below `root`, and the settings of the model `m`; other settings files hold an empty object."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if path.suffix == ".json" else "")
    if settings != "{}":
        (root / "m" / "model-settings.json").write_text(settings)


def names_and_versions(models: Iterable[ModelSource]) -> list[tuple[str, str]]:
    return [(source.name, source.version) for source in models]


@pytest.mark.parametrize(
    ("path", "file"),
    [("boats.onnx", "boats.onnx"), ("boats/model.onnx", "boats/model.onnx"), ("boats", "boats/any.onnx")],
)
def test_file_or_folder_with_a_file_is_a_model(tmp_path: Path, path: str, file: str) -> None:
    create_files(tmp_path, file)
    (source,) = discover(tmp_path / path)
    assert (source.name, source.version) == ("boats", "1")
    assert source.file == (tmp_path / file if path.endswith(".onnx") else None)


@pytest.mark.parametrize(
    "code",
    [
        "class Detector:\n    def predict(self, images): ...",
        "class Detector:\n    async def predict(self): ...\n\nclass Other: ...",
        "class Detector(Base): ...",
    ],
)
def test_python_file_is_a_model_with_its_only_class(tmp_path: Path, code: str) -> None:
    (tmp_path / "boats.py").write_text(code)
    (source,) = discover(tmp_path / "boats.py")
    assert (source.name, source.settings.implementation) == ("boats", "boats:Detector")


def test_python_file_is_served_beside_links_out_of_its_folder(tmp_path: Path) -> None:
    (tmp_path / "boats.py").write_text(
        "class Model:\n    task_type = 'IMAGE_CLASSIFICATION'\n    def predict(self, images): return [[1.0]]"
    )
    (tmp_path / "python").symlink_to("/bin/sh")
    (source,) = find_models(ModelOptions(model_dir=tmp_path / "boats.py", allow_code=True))
    assert load(source).description.platform == "python"


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("import numpy", "got none"),
        ("class A: ...\nclass B: ...", "got several: A, B"),
        ("class :", "is not Python code"),
        ("class A:\0", "is not Python code"),
    ],
)
def test_python_file_without_one_model_class_is_rejected(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "boats.py").write_text(code)
    with pytest.raises(ModelError, match=message):
        discover(tmp_path / "boats.py")


NAME_ERROR = "Expected 1 to 255 printable characters without slashes"
VERSIONS = ["m/2/model.onnx", "m/10/model.onnx", "m/v3.1/model.onnx", "m/old/model.onnx"]
VLM = ["vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx"]


@pytest.mark.parametrize(
    ("files", "path", "expected"),
    [
        (["b/model.onnx", "a/model-settings.json", "notes/readme.txt", ".hidden/model.onnx"], "", ["a 1", "b 1"]),
        (VERSIONS, "", ["m 10", "m 2", "m 3.1"]),
        (VERSIONS, "m", ["m 10", "m 2", "m 3.1"]),
        ([*(f"vlm/onnx/{name}" for name in VLM), "vlm/config.json"], "", ["vlm 1"]),
        *(([f"{name}/a.onnx"], "", [f"{name} 1"]) for name in ("my boats", "bateaux-à-voile", "船", "a.b_c-d@1")),
    ],
)
def test_folders_are_models_or_numbered_versions(
    tmp_path: Path, files: list[str], path: str, expected: list[str]
) -> None:
    create_files(tmp_path, *files)
    assert sorted(map(" ".join, names_and_versions(discover(tmp_path / path)))) == expected


def test_folder_that_cannot_be_read_is_ignored_or_a_fault() -> None:
    user = os.geteuid()
    # Other users cannot open the folders that pytest makes.
    with tempfile.TemporaryDirectory() as name:
        repository = Path(name)
        repository.chmod(0o755)
        create_files(repository, "m/model.onnx", "versions/readme.txt")
        (repository / "lost+found").mkdir(mode=0)
        (repository / "versions" / "1").mkdir(mode=0)
        try:
            # Root can read every folder.
            os.seteuid(user or 65534)
            readable, unreadable = models_in(repository)
        finally:
            os.seteuid(user)
    assert (readable.name, readable.fault) == ("m", None)
    assert "versions/1" in (unreadable.fault or "")


@pytest.mark.parametrize(
    ("settings", "served"),
    [({}, ["10", "9"]), ({"versions": "latest"}, ["10"]), ({"versions": ["9"]}, ["9"])],
)
def test_versions_are_served_as_the_settings_say(
    tmp_path: Path, settings: dict[str, object], served: list[str]
) -> None:
    create_files(tmp_path, "m/model.onnx", "m/9/model.onnx", "m/10/model.onnx", settings=json.dumps(settings))
    sources = find_models(ModelOptions(model=tmp_path / "m", model_name="ships"))
    assert sorted(source.version for source in sources) == served
    assert {source.name for source in sources} == {"ships"}


def test_versions_inherit_settings_unless_they_have_their_own(tmp_path: Path) -> None:
    create_files(
        tmp_path,
        "m/1/model.onnx",
        "m/2/model.onnx",
        "m/2/model-settings.json",
        settings='{"name": "ships", "chariot_id": "2abc"}',
    )
    first, second = model_at(tmp_path / "m")
    assert (first.name, first.settings.chariot_id) == ("ships", "2abc")
    assert (second.name, second.settings.chariot_id) == ("m", None)


def test_uri_in_the_settings_selects_the_file(tmp_path: Path) -> None:
    create_files(tmp_path, "m/a.onnx", "m/b.onnx", settings='{"uri": "b.onnx", "version": "7"}')
    (source,) = model_at(tmp_path / "m")
    assert (source.version, source.file) == ("7", tmp_path / "m" / "b.onnx")


def test_model_name_renames_all_versions_of_the_only_model(tmp_path: Path) -> None:
    create_files(tmp_path, "m/1/model.onnx", "m/2/model.onnx")
    options = ModelOptions(model_dir=tmp_path, model_name="shapes")
    assert sorted(names_and_versions(find_models(options))) == [("shapes", "1"), ("shapes", "2")]
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "ships"}')
    assert {source.name for source in find_models(options)} == {"shapes"}
    create_files(tmp_path, "n/model.onnx")
    assert {source.name for source in find_models(options)} == {"ships", "n"}


@pytest.mark.parametrize("name", ["a/b", ""])
def test_invalid_model_name_is_rejected(tmp_path: Path, name: str) -> None:
    create_files(tmp_path, "model.onnx")
    with pytest.raises(ModelError, match=f"--model-name: {NAME_ERROR}"):
        find_models(ModelOptions(model=tmp_path / "model.onnx", model_name=name))


NAMES = ["..", ".", "a/b", "../a", "a\\b", "a\nb", "a\0b", "a\x1b[31m", "a\u202eb", "n" * 256]
URIS = ["../secret.onnx", "/etc/hostname", "a/../../x.onnx", "..", ".", "a\0b", "a\nb"]


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        *((field, name, f"{field}: {NAME_ERROR}") for field in ("name", "version", "chariot_id") for name in NAMES),
        *(("uri", uri, "below the folder") for uri in URIS),
        ("versions", ["3"], "There is no version 3"),
        ("versions", [], "versions: Expected `array` of length >= 1"),
    ],
)
def test_invalid_value_in_the_settings_is_rejected(tmp_path: Path, field: str, value: object, message: str) -> None:
    create_files(tmp_path, "m/2/a.onnx", settings=json.dumps({field: value}))
    with pytest.raises(ModelError, match=message):
        model_at(tmp_path / "m")
    (model,) = models_in(tmp_path)
    assert model.name == "m"
    assert (model.fault or "").isprintable()


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "a\u202eb", "\udcff"])
def test_folder_with_an_invalid_name_is_listed_with_a_fault(tmp_path: Path, name: str) -> None:
    create_files(tmp_path, f"{name}/a.onnx", "good/a.onnx")
    faults = {source.name: source.fault for source in models_in(tmp_path)}
    assert faults.pop("good") is None
    ((displayed, fault),) = faults.items()
    assert displayed.isprintable()
    assert fault
    assert fault.isprintable()


def test_invalid_settings_do_not_affect_other_models(tmp_path: Path) -> None:
    create_files(tmp_path, "a/model.onnx", "m/model.onnx", "z/model.onnx", settings='{"nmae": "x"}')
    models = models_in(tmp_path)
    assert names_and_versions(models) == [("a", "1"), ("m", "1"), ("z", "1")]
    assert [source.fault is None for source in models] == [True, False, True]
    for use in (describe, load):
        with pytest.raises(ModelError, match=r"m/model-settings\.json: .*nmae"):
            use(models[1])


@pytest.mark.parametrize("runtime", ["onnxruntime", "transformers"])
def test_implementation_with_another_runtime_is_rejected(tmp_path: Path, runtime: str) -> None:
    create_files(tmp_path, "m/model.onnx", settings=f'{{"runtime": "{runtime}", "implementation": "model:Model"}}')
    (source,) = model_at(tmp_path / "m")
    with pytest.raises(ModelError, match=f"'{runtime}'; leave one of them out"):
        describe(source)


def test_path_without_a_model_is_rejected(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no models"):
        discover(tmp_path)
    with pytest.raises(ModelError, match="holds no model:"):
        model_at(tmp_path)
    with pytest.raises(ModelError, match="neither a model file nor a folder"):
        discover(tmp_path / "nowhere")
    create_files(tmp_path, "a/model.onnx")
    with pytest.raises(ModelError, match="is a folder of models, not a model; give one of them, or use --model-repo"):
        model_at(tmp_path)


def test_options_select_the_models(tmp_path: Path) -> None:
    create_files(tmp_path, "a/model.onnx", "b/model.onnx")
    assert names_and_versions(find_models(ModelOptions(model=tmp_path / "a"))) == [("a", "1")]
    assert names_and_versions(find_models(ModelOptions(model_repository=tmp_path))) == [("a", "1"), ("b", "1")]
    assert names_and_versions(find_models(ModelOptions(model_dir=tmp_path / "b"))) == [("b", "1")]
    assert names_and_versions(find_models(ModelOptions(model_dir=tmp_path))) == [("a", "1"), ("b", "1")]
    assert {source.folder.parent for source in find_models(ModelOptions())} == {DEMO_MODELS}
    # The image sets MODEL_DIR.
    demo = {source.folder for source in find_models(ModelOptions(demo=True, model_dir=tmp_path))}
    # The extra `demo` adds models of its package.
    assert {folder for folder in demo if folder.parent == DEMO_MODELS} == {
        DEMO_MODELS / name
        for name in ("classifier", "detector", "face-detector", "oriented-detector", "segmenter", "vlm")
    }
    assert tmp_path / "b" not in demo
    for options in (ModelOptions(model=tmp_path, model_repository=tmp_path), ModelOptions(model=tmp_path, demo=True)):
        with pytest.raises(ModelError, match="one of --model, --model-repository and --demo"):
            find_models(options)


def test_demo_has_the_text_models_of_an_installed_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_files(tmp_path, "rapidocr/__init__.py", "rapidocr/models/PP-OCRv6_det_small.onnx")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    *_, text = find_models(ModelOptions(demo=True))
    assert (text.name, text.file) == ("text-detector", tmp_path / "rapidocr" / "models" / "PP-OCRv6_det_small.onnx")


def test_settings_override_the_score_threshold_of_the_options(tmp_path: Path) -> None:
    create_files(tmp_path, "a/model.onnx", "b/model.onnx")
    (tmp_path / "b" / "model-settings.json").write_text('{"parameters": {"score_threshold": 0.7}}')
    first, second = find_models(ModelOptions(model_repository=tmp_path, score_threshold=0.2))
    assert first.settings.parameters == {"score_threshold": 0.2}
    assert second.settings.parameters == {"score_threshold": 0.7}


def test_relative_paths_give_the_names_of_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create_files(tmp_path, "cars/model.onnx", "ships/1/model.onnx")
    monkeypatch.chdir(tmp_path / "cars")
    assert names_and_versions(model_at(Path("model.onnx"))) == [("cars", "1")]
    assert names_and_versions(model_at(Path())) == [("cars", "1")]
    assert names_and_versions(model_at(Path("../cars"))) == [("cars", "1")]
    monkeypatch.chdir(tmp_path / "ships")
    assert names_and_versions(model_at(Path())) == [("ships", "1")]
    assert names_and_versions(model_at(Path("1/.."))) == [("ships", "1")]


def test_link_gives_a_model_its_name(tmp_path: Path) -> None:
    create_files(tmp_path, "releases/cars-42/model.onnx", "releases/ships-7/1/model.onnx")
    (tmp_path / "models").mkdir()
    (tmp_path / "models" / "cars").symlink_to("../releases/cars-42")
    (tmp_path / "models" / "ships").symlink_to("../releases/ships-7")
    assert names_and_versions(models_in(tmp_path / "models")) == [("cars", "1"), ("ships", "1")]
    assert names_and_versions(model_at(tmp_path / "models" / "cars" / "model.onnx")) == [("cars", "1")]


def test_devices_apply_to_models_without_devices_of_their_own(tmp_path: Path) -> None:
    for name in ("classifier", "detector"):
        shutil.copytree(DEMO_MODELS / name, tmp_path / name)
    (tmp_path / "classifier" / "model-settings.json").write_text('{"onnxruntime": {"devices": ["cpu"]}}')
    sources = find_models(ModelOptions(model_repository=tmp_path, device="cuda:0, cpu"))
    assert [source.settings.onnxruntime.devices for source in sources] == [("cpu",), ("cuda:0", "cpu")]
