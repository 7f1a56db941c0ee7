"""From paths to models. Only names are looked at, so that empty files will do."""

import json
from pathlib import Path

import pytest

from app.assembly.discovery import discover, model_at, models_in
from app.assembly.models import FIXTURE_MODELS, describe, load, sources
from app.settings.model import ModelError, ModelSource
from app.settings.server import ModelOptions


def make(root: Path, *files: str) -> None:
    """Empty files below `root`; settings files hold an empty object."""
    for name in files:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("{}" if path.suffix == ".json" else "")


def named(found: list[ModelSource]) -> list[tuple[str, str]]:
    """Names and versions."""
    return [(source.name, source.version) for source in found]


def test_a_file_is_a_model_called_after_it(tmp_path: Path) -> None:
    make(tmp_path, "boats.onnx")
    (source,) = discover(tmp_path / "boats.onnx")
    assert (source.name, source.version, source.file) == ("boats", "1", tmp_path / "boats.onnx")


def test_a_file_of_the_usual_name_is_called_after_its_folder(tmp_path: Path) -> None:
    make(tmp_path, "boats/model.onnx")
    assert named([*model_at(tmp_path / "boats" / "model.onnx")]) == [("boats", "1")]


def test_a_folder_with_a_model_is_one_model(tmp_path: Path) -> None:
    make(tmp_path, "boats/any.onnx")
    assert named([*discover(tmp_path / "boats")]) == [("boats", "1")]


def test_a_folder_of_folders_is_a_repository(tmp_path: Path) -> None:
    make(tmp_path, "b/model.onnx", "a/model-settings.json", "notes/readme.txt", ".hidden/model.onnx")
    assert named([*discover(tmp_path)]) == [("a", "1"), ("b", "1")]


def test_folders_named_by_numbers_are_versions(tmp_path: Path) -> None:
    make(tmp_path, "m/2/model.onnx", "m/10/model.onnx", "m/v3.1/model.onnx", "m/old/model.onnx")
    assert sorted(named([*models_in(tmp_path)])) == [("m", "10"), ("m", "2"), ("m", "3.1")]
    assert sorted(named([*discover(tmp_path / "m")])) == [("m", "10"), ("m", "2"), ("m", "3.1")]


def test_versions_share_the_settings_above_them_unless_they_have_their_own(tmp_path: Path) -> None:
    make(tmp_path, "m/1/model.onnx", "m/2/model.onnx", "m/2/model-settings.json")
    (tmp_path / "m" / "model-settings.json").write_text('{"name": "ships", "chariot_id": "2abc"}')
    first, second = model_at(tmp_path / "m")
    assert (first.name, first.settings.chariot_id) == ("ships", "2abc")
    assert (second.name, second.settings.chariot_id) == ("m", None)


def test_three_files_are_one_model(tmp_path: Path) -> None:
    files = ("vision_encoder.onnx", "embed_tokens.onnx", "decoder_model_merged.onnx")
    make(tmp_path, *(f"vlm/onnx/{name}" for name in files), "vlm/config.json")
    assert named([*discover(tmp_path)]) == [("vlm", "1")]


def test_settings_name_the_file_below_the_folder(tmp_path: Path) -> None:
    make(tmp_path, "m/a.onnx", "m/b.onnx")
    (tmp_path / "m" / "model-settings.json").write_text('{"uri": "b.onnx", "version": "7"}')
    (source,) = model_at(tmp_path / "m")
    assert (source.version, source.file) == ("7", tmp_path / "m" / "b.onnx")


NO_NAMES = ["..", ".", "a/b", "../a", "a\\b", "a\nb", "a\0b", "a\x1b[31m", "a\u202eb", "a\ud800b", "n" * 256]


@pytest.mark.parametrize("field", ["name", "version", "chariot_id"])
@pytest.mark.parametrize("value", [each for each in NO_NAMES if each != "a\ud800b"])
def test_names_that_are_more_than_names_are_refused(tmp_path: Path, field: str, value: str) -> None:
    make(tmp_path, "m/a.onnx")
    (tmp_path / "m" / "model-settings.json").write_text(json.dumps({field: value}))
    with pytest.raises(ModelError, match=f"{field}: Expected up to 255 printable characters without slashes"):
        model_at(tmp_path / "m")
    (found,) = models_in(tmp_path)
    assert found.name == "m"
    assert (found.fault or "").isprintable()


@pytest.mark.parametrize("name", ["a\nb", "a\x1b[31m", "a\u202eb", "\udcff"])
def test_a_folder_of_such_a_name_is_one_fault_among_models(tmp_path: Path, name: str) -> None:
    make(tmp_path, f"{name}/a.onnx", "good/a.onnx")
    found = {each.name: each.fault for each in models_in(tmp_path)}
    assert found.pop("good") is None
    ((shown, fault),) = found.items()
    assert shown.isprintable()
    assert fault
    assert fault.isprintable()


@pytest.mark.parametrize("name", ["boats", "my boats", "bateaux-à-voile", "船", "a.b_c-d@1"])
def test_names_of_any_language_are_names(tmp_path: Path, name: str) -> None:
    make(tmp_path, f"{name}/a.onnx")
    assert [each.name for each in models_in(tmp_path)] == [name]


@pytest.mark.parametrize("uri", ["../secret.onnx", "/etc/hostname", "a/../../x.onnx", "..", ".", "a\0b", "a\nb"])
def test_settings_cannot_name_a_file_elsewhere(tmp_path: Path, uri: str) -> None:
    make(tmp_path, "m/a.onnx")
    (tmp_path / "m" / "model-settings.json").write_text(json.dumps({"uri": uri}))
    with pytest.raises(ModelError, match="below the folder"):
        model_at(tmp_path / "m")


@pytest.mark.parametrize("content", ["[]", '{"labels": 5}', '{"nmae": "x"}', "{", '{"parameters": 3}'])
def test_settings_that_are_not_understood_are_named(tmp_path: Path, content: str) -> None:
    make(tmp_path, "m/a.onnx")
    (tmp_path / "m" / "model-settings.json").write_text(content)
    with pytest.raises(ModelError, match=r"model-settings\.json"):
        model_at(tmp_path / "m")


@pytest.mark.parametrize(
    ("content", "said"),
    [('{"nmae": "x"}', "; known are name, version,"), ('{"task_type": "DETECT"}', "; known are IMAGE_CLASSIFICATION,")],
)
def test_what_could_be_meant_is_listed(tmp_path: Path, content: str, said: str) -> None:
    make(tmp_path, "m/a.onnx")
    (tmp_path / "m" / "model-settings.json").write_text(content)
    with pytest.raises(ModelError, match=said):
        model_at(tmp_path / "m")


def test_settings_that_are_not_understood_leave_the_other_models(tmp_path: Path) -> None:
    make(tmp_path, "a/model.onnx", "m/model.onnx", "z/model.onnx")
    (tmp_path / "m" / "model-settings.json").write_text('{"nmae": "x"}')
    found = models_in(tmp_path)
    assert named([*found]) == [("a", "1"), ("m", "1"), ("z", "1")]
    assert [each.fault is None for each in found] == [True, False, True]
    for understand in (describe, load):
        with pytest.raises(ModelError, match=r"m/model-settings\.json: .*nmae"):
            understand(found[1])


@pytest.mark.parametrize("runtime", ["onnxruntime", "transformers"])
def test_a_class_is_not_left_out_for_another_runtime_without_a_word(tmp_path: Path, runtime: str) -> None:
    make(tmp_path, "m/model.onnx")
    (tmp_path / "m" / "model-settings.json").write_text(f'{{"runtime": "{runtime}", "implementation": "model:Model"}}')
    (source,) = model_at(tmp_path / "m")
    with pytest.raises(ModelError, match=f"'{runtime}'; leave one of them out"):
        describe(source)


def test_nothing_to_serve_is_said(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="holds no models"):
        discover(tmp_path)
    with pytest.raises(ModelError, match="holds no model:"):
        model_at(tmp_path)
    with pytest.raises(ModelError, match="neither a model file nor a folder"):
        discover(tmp_path / "nowhere")


def test_options_choose_the_models(tmp_path: Path) -> None:
    make(tmp_path, "a/model.onnx", "b/model.onnx")
    assert named([*sources(ModelOptions(model=tmp_path / "a"))]) == [("a", "1")]
    assert named([*sources(ModelOptions(model_repository=tmp_path))]) == [("a", "1"), ("b", "1")]
    assert named([*sources(ModelOptions(model_dir=tmp_path / "b"))]) == [("b", "1")]
    assert named([*sources(ModelOptions(model_dir=tmp_path))]) == [("a", "1"), ("b", "1")]
    assert {source.folder.parent for source in sources(ModelOptions())} == {FIXTURE_MODELS}
    with pytest.raises(ModelError, match="not both"):
        sources(ModelOptions(model=tmp_path, model_repository=tmp_path))


def test_the_threshold_of_the_options_is_below_that_of_the_settings(tmp_path: Path) -> None:
    make(tmp_path, "a/model.onnx", "b/model.onnx")
    (tmp_path / "b" / "model-settings.json").write_text('{"parameters": {"score_threshold": 0.7}}')
    first, second = sources(ModelOptions(model_repository=tmp_path, score_threshold=0.2))
    assert first.settings.parameters == {"score_threshold": 0.2}
    assert second.settings.parameters == {"score_threshold": 0.7}


def test_names_are_those_of_folders_also_by_relative_paths(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path, "cars/model.onnx", "ships/1/model.onnx")
    monkeypatch.chdir(tmp_path / "cars")
    assert named([*model_at(Path("model.onnx"))]) == [("cars", "1")]
    assert named([*model_at(Path())]) == [("cars", "1")]
    monkeypatch.chdir(tmp_path / "ships")
    assert named([*model_at(Path())]) == [("ships", "1")]


@pytest.mark.parametrize(
    ("policy", "served"), [('"all"', ["10", "2", "9"]), ('"latest"', ["10"]), ('["2", "9"]', ["2", "9"])]
)
def test_the_settings_say_which_versions_are_served(tmp_path: Path, policy: str, served: list[str]) -> None:
    make(tmp_path, "m/2/model.onnx", "m/9/model.onnx", "m/10/model.onnx")
    (tmp_path / "m" / "model-settings.json").write_text(f'{{"versions": {policy}}}')
    assert sorted(version for _, version in named([*models_in(tmp_path)])) == served


def test_a_version_that_is_not_there_cannot_be_served(tmp_path: Path) -> None:
    make(tmp_path, "m/2/model.onnx")
    (tmp_path / "m" / "model-settings.json").write_text('{"versions": ["3"]}')
    with pytest.raises(ModelError, match="There is no version 3"):
        model_at(tmp_path / "m")
