"""Serve models from the layouts of other servers: Triton's repositories, MLServer's settings."""

import json
import shutil
from pathlib import Path

import pytest

from app.core.assembly.discovery import discover, model_at, models_in
from app.core.assembly.models import describe, load
from app.core.settings.model import BatchingSettings, ModelError, OnnxRuntimeSettings
from app.core.settings.server import DEMO_MODELS
from app.plugins.authoring.check import check
from tests.core.runtimes.onnxruntime import graphs
from tests.core.runtimes.onnxruntime.answers import inspected

CLASSIFIER = DEMO_MODELS / "classifier" / "model.onnx"
CONFIG = """\
# The shapes of the classifier, as Triton's documentation writes them.
name: "shapes"
platform: "onnxruntime_onnx"
max_batch_size: 8
input [
  {
    name: "images"
    data_type: TYPE_FP32
    format: FORMAT_NCHW
    dims: [ 3, 64, 64 ]
  }
]
output [ { name: "output0" data_type: TYPE_FP32 dims: [ 20 ] label_filename: "shapes.txt" } ]
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 500 }
optimization { execution_accelerators { gpu_execution_accelerator : [ { name : "tensorrt" } ] } }
parameters { key: "session.intra_op_thread_count" value: { string_value: "2" } }
"""


def write_triton_model(folder: Path, config: str = CONFIG, versions: tuple[str, ...] = ("1",)) -> Path:
    """Write a model of a Triton repository and return its folder."""
    for version in versions:
        (folder / version).mkdir(parents=True)
        shutil.copy(CLASSIFIER, folder / version / "model.onnx")
    folder.mkdir(exist_ok=True)
    (folder / "config.pbtxt").write_text(config)
    return folder


def test_triton_config_becomes_settings(tmp_path: Path) -> None:
    write_triton_model(tmp_path / "m")
    (source,) = models_in(tmp_path)
    assert (source.name, source.version, source.fault) == ("shapes", "1", None)
    assert source.settings.batching == BatchingSettings(max_size=8, max_delay_ms=0.5)
    assert source.settings.onnxruntime == OnnxRuntimeSettings(devices=("cpu",), instances=2)
    assert source.imported is not None
    assert source.imported.ignored == ("dynamic_batching.preferred_batch_size", "optimization", "parameters")
    assert load(source).description.task_type == "IMAGE_CLASSIFICATION"


def test_gpus_of_triton_become_devices(tmp_path: Path) -> None:
    write_triton_model(tmp_path / "m", CONFIG.replace("kind: KIND_CPU", "gpus: [ 0, 1 ]"))
    (source,) = models_in(tmp_path)
    assert source.settings.onnxruntime == OnnxRuntimeSettings(devices=("cuda:0", "cuda:1"), instances=2)


def test_model_settings_override_those_of_triton(tmp_path: Path) -> None:
    folder = write_triton_model(tmp_path / "m")
    (folder / "model-settings.json").write_text('{"name": "ours", "batching": {"max_size": 1}}')
    (source,) = model_at(folder)
    assert (source.name, source.settings.batching.max_size) == ("ours", 1)
    assert source.settings.onnxruntime.instances == 2
    assert source.imported is not None
    assert set(source.imported.settings) == {"versions", "runtime", "onnxruntime"}


def test_label_filename_of_triton_is_followed(tmp_path: Path) -> None:
    config = 'name: "m"\noutput [ { name: "output0" data_type: TYPE_FP32 dims: [3] label_filename: "words.txt" } ]\n'
    (tmp_path / "config.pbtxt").write_text(config)
    (tmp_path / "words.txt").write_text("red\ngreen light\nblue\n")
    (tmp_path / "labels.txt").write_text("a\nb\nc\n")
    found = inspected(graphs.source(graphs.channel_means(tmp_path / "model.onnx", softmax=True))).description
    assert found.labels == ("red", "green light", "blue")


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", ["10"]),
        ("latest { num_versions: 2 }", ["09", "10"]),
        ("all { }", ["09", "10", "2"]),
        ("specific { versions: [2, 10] }", ["10", "2"]),
    ],
)
def test_version_policy_of_triton_selects_versions(tmp_path: Path, policy: str, served: list[str]) -> None:
    config = f"version_policy: {{ {policy} }}" if policy else "max_batch_size: 0"
    folder = write_triton_model(tmp_path / "m", config, versions=("2", "09", "10"))
    assert sorted(source.version for source in discover(folder)) == served


def test_graph_of_triton_has_another_name_or_is_in_a_folder_named_model_onnx(tmp_path: Path) -> None:
    folder = write_triton_model(tmp_path / "m", 'backend: "onnxruntime" default_model_filename: "net.onnx"')
    (folder / "1" / "model.onnx").rename(folder / "1" / "net.onnx")
    (source,) = model_at(folder)
    assert source.file == folder / "1" / "net.onnx"
    assert describe(source).labels[0] == "red circle"
    graph = (folder / "1" / "net.onnx").rename(folder / "graph")
    (folder / "config.pbtxt").write_text(CONFIG)
    (folder / "1" / "model.onnx").mkdir()
    graph.rename(folder / "1" / "model.onnx" / "model.onnx")
    (source,) = model_at(folder)
    assert describe(source).labels[0] == "red circle"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        ('platform: "tensorrt_plan"', "'tensorrt' of Triton is not here; use the ONNX file"),
        ('backend: "python"', "'python' of Triton is not here; write a class with predict"),
        ('platform: "pytorch_libtorch"', "torch.onnx.export"),
        ('platform: "ensemble"', "call them one after another"),
        ('backend: "vllm"', "'vllm' of Triton is not here; export the model to ONNX"),
        ("max_batch_size: }", r"is not a model configuration of Triton: 1:17"),
        ("instance_group { kind: 1234567890123456789012 }", "configuration of Triton: Value out of range"),
    ],
)
def test_triton_model_of_other_backend_is_listed_with_what_to_do(tmp_path: Path, config: str, reason: str) -> None:
    write_triton_model(tmp_path / "other", config, versions=())
    write_triton_model(tmp_path / "shapes")
    fault, good = sorted(models_in(tmp_path), key=lambda source: source.name)
    assert (good.name, good.fault) == ("shapes", None)
    with pytest.raises(ModelError, match=reason):
        load(fault)


def test_declared_runtime_replaces_the_config_of_triton(tmp_path: Path) -> None:
    folder = write_triton_model(tmp_path / "m", 'platform: "tensorrt_plan"')
    (folder / "model-settings.json").write_text('{"runtime": "onnxruntime"}')
    (source,) = model_at(folder)
    assert source.imported is None
    assert describe(source).labels


@pytest.mark.parametrize(
    ("implementation", "advice"),
    [
        ("mlserver_xgboost.XGBoostModel", "export the model to ONNX"),
        ("mlserver_sklearn.SKLearnModel", "#scikit-learn"),
        ("mlserver_huggingface.HuggingFaceRuntime", "save_pretrained"),
        ("mlserver_mlflow.MLflowRuntime", "serve its model.onnx"),
    ],
)
def test_runtime_of_mlserver_is_rejected_with_what_to_do(tmp_path: Path, implementation: str, advice: str) -> None:
    settings = {"name": "m", "implementation": implementation, "parallel_workers": 0, "parameters": {"uri": "./m.bin"}}
    (tmp_path / "model-settings.json").write_text(json.dumps(settings))
    with pytest.raises(ModelError, match=f"{implementation} is a runtime of MLServer, which is not here; .*{advice}"):
        model_at(tmp_path)


def test_check_lists_what_has_no_effect(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    check(write_triton_model(tmp_path / "m"))
    shown = capsys.readouterr().out
    assert "Settings from config.pbtxt: versions, runtime, name, onnxruntime, batching." in shown
    assert "No effect here: dynamic_batching.preferred_batch_size, optimization, parameters, in config.pbtxt." in shown
