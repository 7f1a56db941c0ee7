"""Read what Triton's ``config.pbtxt`` says about a model, and reject runtimes of MLServer.

MLServer's ``model-settings.json`` has the name of ours.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from google.protobuf import text_format
from google.protobuf.message import Message

from app.core.hooks import ForeignFormat
from app.core.settings.model import (
    SETTINGS_FILE,
    BatchingSettings,
    ImportedConfig,
    ModelError,
    OnnxRuntimeSettings,
    read_bounded,
    read_json_file,
)
from app.plugins.authoring.other_formats.advice import advice_for
from app.plugins.authoring.proto import message_class

_MLSERVER_ADVICE = {
    "mlserver_huggingface": "write the model with save_pretrained, and serve its folder without this file",
    "mlserver_mlflow": "save it with mlflow.onnx.save_model, and serve its model.onnx without this file",
    "mlserver_sklearn": "write a class that loads it, as in docs/python_models.md#scikit-learn",
}
_MLSERVER_OTHER_ADVICE = (
    "export the model to ONNX, or write a class with predict and name it, as in "
    '"implementation": "model:Model" (docs/python_models.md)'
)

TRITON_FILE = "config.pbtxt"

_TRITON_MAX_BYTES = 1024 * 1024
_FIRST_IGNORED = 100
"""Fields of our message from this number on have no effect."""

_BACKEND = "onnxruntime"
_TRITON_ADVICE = {
    "ensemble": "serve each model that it combines, and let the client call them one after another",
    "openvino": 'use an ONNX file, and model-settings.json with {"runtime": "openvino"}',
    "python": 'write a class with predict, and name it in model-settings.json, as in "implementation": "model:Model"',
    "pytorch": 'export the model with torch.onnx.export, and set platform to "onnxruntime_onnx"',
    "tensorflow": 'convert the model with tf2onnx, and set platform to "onnxruntime_onnx"',
    "tensorrt": 'use the ONNX file that the engine was built from, and set platform to "onnxruntime_onnx"',
}
_TRITON_OTHER_ADVICE = 'export the model to ONNX, and set platform to "onnxruntime_onnx"'


def reject_mlserver_runtime(folder: Path) -> None:
    """Reject a settings file for one of MLServer's own runtimes. Other settings are left to the usual checks.

    Raise ModelError with what to do instead.
    """
    path = folder / SETTINGS_FILE
    try:
        declared = read_json_file(path, dict[str, object]).get("implementation") if path.is_file() else None
    except ModelError:
        return
    if isinstance(declared, str) and declared.startswith("mlserver_"):
        advice = _MLSERVER_ADVICE.get(declared.partition(".")[0], _MLSERVER_OTHER_ADVICE)
        raise ModelError(f"{path}: implementation: {declared} is a runtime of MLServer, which is not here; {advice}")


def read_triton_config(folder: Path) -> ImportedConfig | None:
    """Return the configuration of the model in `folder`; None without a file.

    Raise ModelError if the file cannot be read, or is for a backend other than ONNX Runtime.
    """
    config = _parse(folder)
    if config is None:
        return None
    platform = str(config.platform)
    backend = str(config.backend) or platform.partition("_")[0]
    if backend not in ("", _BACKEND):
        advice = _TRITON_ADVICE.get(backend, _TRITON_OTHER_ADVICE)
        raise ModelError(f"{folder / TRITON_FILE}: the backend {backend!r} of Triton is not here; {advice}")
    settings: dict[str, object] = {"versions": _versions(folder, config)}
    if backend:
        settings["runtime"] = _BACKEND
    if config.name:
        settings["name"] = str(config.name)
    if config.default_model_filename:
        settings["uri"] = str(config.default_model_filename)
    if config.instance_group:
        settings["onnxruntime"] = _onnxruntime(config.instance_group)
    ignored = list(dict.fromkeys(_ignored(config, "")))
    if config.HasField("dynamic_batching"):
        if config.max_batch_size > 0:
            delay_ms = config.dynamic_batching.max_queue_delay_microseconds / 1000
            settings["batching"] = BatchingSettings(
                max_size=min(config.max_batch_size, 1024), max_delay_ms=min(delay_ms, 1000.0)
            )
        else:
            ignored.append("dynamic_batching, because max_batch_size is 0")
    return ImportedConfig(file=TRITON_FILE, settings=settings, ignored=tuple(ignored))


def label_filename(folder: Path) -> str:
    """Return the name of the label file in the configuration in `folder`; "" without one.

    Raise ModelError if the configuration cannot be read.
    """
    config = _parse(folder)
    names = [] if config is None else [str(tensor.label_filename) for tensor in config.output]
    return next(filter(None, names), "")


def _parse(folder: Path) -> Any:
    """Return the message in the file, or None without a file."""
    path = folder / TRITON_FILE
    if not path.is_file():
        return None
    config = message_class("charioteer.triton.RepositoryConfig")()
    try:
        text_format.Parse(read_bounded(path, _TRITON_MAX_BYTES).decode(), config, allow_unknown_field=True)
    except (text_format.ParseError, ValueError, RecursionError) as error:
        raise ModelError(f"{path} is not a model configuration of Triton: {error}") from None
    return config


def _versions(folder: Path, config: Any) -> object:
    """Return the versions to serve. Triton's default is the latest one."""
    policy = config.version_policy
    if policy.HasField("all"):
        return "all"
    if policy.HasField("specific"):
        return [str(version) for version in policy.specific.versions]
    if policy.latest.num_versions <= 1:
        return "latest"
    names = sorted((path.name for path in folder.iterdir() if path.is_dir() and path.name.isdecimal()), key=int)
    return names[-policy.latest.num_versions :]


def _onnxruntime(groups: Sequence[Any]) -> OnnxRuntimeSettings:
    devices: dict[str, None] = {}
    for group in groups:
        if group.gpus:
            devices.update(dict.fromkeys(f"cuda:{number}" for number in group.gpus))
        elif group.kind != group.KIND_AUTO:
            devices["cpu" if group.kind == group.KIND_CPU else "auto"] = None
    instances = min(max(max(group.count for group in groups), 1), 64)
    return OnnxRuntimeSettings(devices=tuple(devices) or None, instances=instances)


def _ignored(message: Any, prefix: str) -> Iterator[str]:
    """Yield the paths of the fields that are set and have no effect."""
    for field, value in message.ListFields():
        path = f"{prefix}{field.name}"
        if field.number >= _FIRST_IGNORED:
            yield path
        elif field.message_type is not None:
            for item in [value] if isinstance(value, Message) else value:
                yield from _ignored(item, f"{path}.")


FORMATS = (
    ForeignFormat(files=(TRITON_FILE,), read=read_triton_config, label_file=label_filename),
    ForeignFormat(check=reject_mlserver_runtime),
    ForeignFormat(advice=advice_for),
)
"""Triton, MLServer, and the files of frameworks that no runtime reads by itself."""
