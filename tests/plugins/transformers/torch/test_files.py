"""Test the errors of folders that cannot be served, that importing the runtime is cheap, and models in threads."""

import json
import shutil
import socket
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import pytest

from app.core.assembly.discovery import discover
from app.core.assembly.models import describe, load
from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.core.settings.model import ModelError, ModelSettings, ModelSource, PreprocessingSettings
from app.plugins.transformers.runtimes import TRANSFORMERS
from app.plugins.transformers.torch.files import check_files
from app.plugins.transformers.torch.settings import TransformersSettings
from metadata.model import Origin
from tasks.task import TaskType
from tests.plugins.transformers.torch.asking import FolderOf, Served, answers, image_input, scene
from tests.support.data.requests import text_input

NOTHING: Mapping[str, Any] = {}


def source(folder: Path, file: Path | None = None, **settings: Any) -> ModelSource:
    return ModelSource(name="m", version="1", folder=folder, file=file, settings=registry().model_settings(**settings))


def test_config_beside_weights_is_recognised(tmp_path: Path) -> None:
    assert not TRANSFORMERS.recognises(source(tmp_path))
    (tmp_path / "config.json").write_text("{}")
    assert not TRANSFORMERS.recognises(source(tmp_path))
    (tmp_path / "model.safetensors").touch()
    assert TRANSFORMERS.recognises(source(tmp_path))
    assert TRANSFORMERS.recognises(source(tmp_path, tmp_path / "model.safetensors"))
    assert not TRANSFORMERS.recognises(source(tmp_path, tmp_path / "model.onnx"))


def hugging_face_folder(folder: Path, **files: Any) -> ModelSource:
    """Write a Hugging Face folder with JSON files; a double underscore in a name stands for a dot."""
    (folder / "model.safetensors").write_bytes(b"x" * 30)
    (folder / "config.json").write_text('{"model_type": "vit", "architectures": ["ViTForImageClassification"]}')
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(json.dumps(content))
    (found,) = discover(folder)
    return found


def nested(value: Any, depth: int) -> Any:
    return value if depth == 0 else {"text_config": nested(value, depth - 1)}


EVIL = {"auto_map": {"AutoModel": "evil.Model"}, "model_type": "evil"}
CONFIGURATIONS = ("config", "preprocessor_config", "processor_config", "tokenizer_config")


@pytest.mark.parametrize(
    ("files", "error_text"),
    [
        *(({f"{name}__json": EVIL}, rf"{name}\.json refers to Python code of the model \(auto_map\)")
          for name in CONFIGURATIONS),
        ({"config__json": {"text_config": {"auto_map": {"AutoModel": "a/b--evil.Model"}}}}, "auto_map"),
        ({"config__json": {"parts": [{"auto_map": {"AutoConfig": "evil.Config"}}]}}, "auto_map"),
        ({"video_preprocessor_config__json": {"auto_map": {"AutoProcessor": "evil.P"}}}, "auto_map"),
        ({"config__json": nested({"auto_map": {"AutoModel": "evil.Model"}}, 40)}, "auto_map"),
        ({"config__json": {"attn_implementation": "kernels-community/evil"}}, "refers to code on a hub"),
        ({"config__json": {"vision_config": {"_attn_implementation": {"": "a/b@main"}}}}, "refers to code on a hub"),
        ({"adapter_config__json": {"base_model_name_or_path": "/etc"}}, "adapters of another model"),
    ],
)  # fmt: skip
def test_reference_to_code_or_other_model_is_rejected(tmp_path: Path, files: Any, error_text: str) -> None:
    (tmp_path / "evil.py").write_text("raise SystemExit('the code was run')")
    model_source = hugging_face_folder(tmp_path, **files)
    for use in (describe, load):
        with pytest.raises(ModelError, match=error_text):
            use(model_source)


@pytest.mark.parametrize(
    "shard", ["../other/model.safetensors", "/etc/passwd", "pytorch_model.bin", "sub/model.safetensors", "..", ""]
)
def test_weight_index_may_name_only_safetensors_beside_it(tmp_path: Path, shard: str) -> None:
    index = {"metadata": {}, "weight_map": {"w": shard}}
    model_source = hugging_face_folder(tmp_path, model__safetensors__index__json=index)
    with pytest.raises(ModelError, match=r"expected \.safetensors files beside it"):
        load(model_source)


def test_pickle_index_beside_safetensors_is_ignored(tmp_path: Path) -> None:
    index = {"weight_map": {"w": "pytorch_model-1.bin"}}
    check_files(hugging_face_folder(tmp_path, pytorch_model__bin__index__json=index))


@pytest.mark.parametrize(
    ("config", "weights", "reason"),
    [
        ("{", b"x", "config.json is not valid JSON"),
        ("[]", b"x", "config.json: Expected `object`, got `array`"),
        ("{}", b"version https://git-lfs.github.com/spec/v1", "is a Git LFS pointer"),
    ],
)
def test_damaged_files_are_rejected(tmp_path: Path, config: str, weights: bytes, reason: str) -> None:
    (tmp_path / "config.json").write_text(config)
    (tmp_path / "model.safetensors").write_bytes(weights)
    with pytest.raises(ModelError, match=reason):
        TRANSFORMERS.load(source(tmp_path))


Changed = Callable[..., Path]


@pytest.fixture
def changed(folder_of: FolderOf, tmp_path: Path) -> Changed:
    """Return a function that copies a model and changes fields of a JSON file; () removes a field, None the file."""

    def copy_with_changes(name: str, file: str = "config.json", fields: Mapping[str, Any] | None = NOTHING) -> Path:
        folder = shutil.copytree(folder_of(name), tmp_path / name)
        if fields is None:
            (folder / file).unlink()
        else:
            content = {**json.loads((folder / file).read_text()), **fields}
            (folder / file).write_text(json.dumps({key: value for key, value in content.items() if value != ()}))
        return folder

    return copy_with_changes


@pytest.mark.parametrize(
    ("name", "file", "fields", "reason"),
    [
        *(("vit", "config.json", fields, reason) for fields, reason in (
            ({"model_type": "nothing"}, r"config.json cannot be parsed.*python_models\.md#transformers"),
            ({"architectures": ["ViTModel"]}, r"no supported task has this .*; a Python class .*\.md#transformers"),
            ({"architectures": ["BertForTokenClassification"]}, r"type TOKEN_\w+ was removed in .* 0\.3: serve"),
            ({"architectures": ()}, 'names no architectures; declare "task_type"'),
            ({"id2label": {"0": "a", "2": "b", "3": "c"}}, "id2label: Expected the numbers 0 to 2"),
            ({"id2label": {str(n): str(n) for n in range(5)}}, r"classifier.*is \[3.*but \[5.*labels wrong"),
            ({"num_hidden_layers": 3}, r"16 weights of the architecture are missing: vit\.\S*2"),
            (None, "config.json cannot be read: No such file"),
        )),
        ("vit", "preprocessor_config.json", {"size": 64}, r"cannot answer a first request: .*64\*64"),
        ("vit", "preprocessor_config.json", None, "no usable image processor"),
        ("vit", "model.safetensors", None, "has no weights"),
        ("llava", "processor_config.json", {"processor_class": "Unknown"}, "does not know its processor_class"),
        ("grounding_dino", "tokenizer.json", None, "no vocabulary for its BertTokenizer: is tokenizer.json missing"),
        ("causal_lm", "tokenizer.json", None, "no usable tokenizer.json"),
    ],
)  # fmt: skip
def test_folder_that_does_not_fit_is_rejected(
    changed: Changed, name: str, file: str, fields: dict[str, Any] | None, reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        TRANSFORMERS.load(source(changed(name, file, fields)))


def test_missing_labels_are_reported_as_guessed(changed: Changed) -> None:
    numbered = {str(number): f"LABEL_{number}" for number in range(3)}
    folder = changed("vit", fields={"id2label": numbered, "label2id": ()})
    facts = {fact.topic: fact for fact in TRANSFORMERS.inspect(source(folder)).facts}
    assert facts["labels"].value.startswith("none found, 3")
    assert facts["labels"].origin is Origin.GUESSED
    declared = TRANSFORMERS.load(source(folder, labels=("x", "y", "z")))
    assert {record.label for record in answers(declared, image_input(scene()))[0]} == {"x", "y", "z"}


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("vit", {"labels": ("a", "b")}, "has 3 classes, but model-settings.json declares 2 labels"),
        ("vit", {"layout": "panoptic"}, "layout: Expected none for this model"),
        ("vit", {"preprocessing": PreprocessingSettings(scale=1.0)}, "has its own processor"),
        ("vit", {"task_type": TaskType.OBJECT_DETECTION}, "does not list for OBJECT_DETECTION"),
        ("vit", {"transformers": TransformersSettings(device="cuda:7000")}, "cuda:7000"),
        ("segformer", {"layout": "instance"}, "layout: Expected one of semantic, got 'instance'"),
    ],
)
def test_settings_that_misfit_are_rejected(
    folder_of: FolderOf, name: str, settings: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ModelError, match=reason):
        TRANSFORMERS.load(source(folder_of(name), **settings))


def test_device_and_dtype_chosen_by_machine_are_not_guesses(folder_of: FolderOf) -> None:
    facts = {fact.topic: fact.origin for fact in TRANSFORMERS.load(source(folder_of("vit"))).description.facts}
    assert (facts["device"], facts["dtype"]) == (Origin.MACHINE, Origin.MACHINE)
    settings = TransformersSettings(device="cpu", dtype="float32")
    declared = TRANSFORMERS.load(source(folder_of("vit"), transformers=settings)).description.facts
    assert {fact.topic: fact.origin for fact in declared}["device"] is Origin.DECLARED


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_model_runs_in_half_precision(folder_of: FolderOf, dtype: Any) -> None:
    full_precision = TRANSFORMERS.load(source(folder_of("resnet")))
    half_precision = TRANSFORMERS.load(source(folder_of("resnet"), transformers=TransformersSettings(dtype=dtype)))
    (expected,), (found,) = answers(full_precision, image_input(scene())), answers(half_precision, image_input(scene()))
    by_label = {record.label: record.score for record in expected}
    assert all(record.score == pytest.approx(by_label[record.label], abs=0.02) for record in found)
    assert [fact.value for fact in half_precision.description.facts if fact.topic == "dtype"] == [dtype]


@pytest.mark.parametrize("name", ["vit", "llava", "smolvlm"])
def test_load_and_answer_open_no_connection(folder_of: FolderOf, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    folder = folder_of(name)

    def reject(*arguments: object, **more: object) -> None:
        raise AssertionError("a connection was opened")

    monkeypatch.setattr(socket.socket, "connect", reject)
    monkeypatch.setattr(socket, "getaddrinfo", reject)
    assert answers(TRANSFORMERS.load(source(folder)), image_input(scene()))


def test_an_onnx_file_beside_the_weights_is_preferred(changed: Changed) -> None:
    folder = changed("vit")
    (found,) = discover(folder)
    assert describe(found).platform == "transformers"
    (folder / "model.onnx").touch()
    with pytest.raises(ModelError, match=r"model\.onnx is empty"):
        load(found)
    declared = msgspec.structs.replace(found, settings=ModelSettings(runtime="transformers"))
    assert load(declared).description.platform == "transformers"


@pytest.mark.parametrize("name", ["vit", "t5"])
def test_weight_file_is_not_mapped(served: Served, folder_of: FolderOf, name: str) -> None:
    """Truncating a mapped file would crash the process."""
    servable = served(name)
    (weights,) = folder_of(name).glob("*.safetensors")
    # Other tests in this process may have mapped the weights of other models.
    assert str(weights.resolve()) not in Path("/proc/self/maps").read_text()
    if name == "vit":
        assert answers(servable, image_input(scene()))


NAMES = ["vit", "t5", "causal_lm", "segformer", "llava", "clip"]


def test_models_loaded_concurrently_keep_their_dtype(folder_of: FolderOf) -> None:
    def loaded(name: str) -> Servable:
        # transformers sets the dtype for the entire process while it reads weights.
        dtype = TransformersSettings(dtype="bfloat16" if name in ("vit", "clip") else "float32")
        return TRANSFORMERS.load(source(folder_of(name), transformers=dtype))

    for name in NAMES:
        folder_of(name)
    with ThreadPoolExecutor(len(NAMES)) as pool:
        servables = list(pool.map(loaded, NAMES))
    facts = [fact for servable in servables for fact in servable.description.facts if fact.topic == "dtype"]
    assert [fact.value for fact in facts] == ["bfloat16", *["float32"] * 4, "bfloat16"]


def test_answers_do_not_depend_on_concurrent_requests(served: Served) -> None:
    images = [scene(90 + 10 * number, 64, number) for number in range(4)]
    calls = [
        *((served("vit"), image_input(image)) for image in images),
        *((served("llava"), image_input(image, prompts=["what?"], max_new_tokens=6)) for image in images),
        *((served("clip"), image_input(image, candidate_labels=["a dog", "red"])) for image in images),
        *((served("causal_lm"), text_input("Hello", max_new_tokens=8, temperature=1.5, seed=n)) for n in range(4)),
    ]
    expected = [answers(servable, tensor) for servable, tensor in calls]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(2):
            futures = [pool.submit(answers, servable, tensor) for servable, tensor in calls]
            assert [future.result() for future in futures] == expected
