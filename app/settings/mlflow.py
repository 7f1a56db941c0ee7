"""Read ``MLmodel``, which describes a model that MLflow saved."""

from pathlib import Path
from typing import Any, cast

import yaml

from app.settings.imported import ImportedConfig
from app.settings.model import ModelError, read_bounded

__all__ = ("MLFLOW_FILE", "read_mlflow_model")

MLFLOW_FILE = "MLmodel"

_MAX_BYTES = 4 * 1024 * 1024
_READ = ("data", "onnx_version")
_ADVICE = {
    "transformers": "write the model with save_pretrained, and serve that folder",
    "pytorch": "export it with torch.onnx.export, and save it with mlflow.onnx.save_model",
    "tensorflow": "convert it with tf2onnx, and save it with mlflow.onnx.save_model",
    "keras": "export it with model.export(format='onnx'), and save it with mlflow.onnx.save_model",
}
_OTHER_ADVICE = (
    "save it with mlflow.onnx.save_model, or write a class with predict that loads it "
    "and name it in model-settings.json (docs/python_models.md)"
)


def read_mlflow_model(folder: Path) -> ImportedConfig | None:
    """Return the configuration of the model in `folder`; None without a file.

    Raises:
        ModelError: if the file cannot be read, or lacks the flavor onnx.
    """
    path = folder / MLFLOW_FILE
    if not path.is_file():
        return None
    try:
        content = cast("object", yaml.safe_load(read_bounded(path, _MAX_BYTES)))
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror}") from None
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        raise ModelError(f"{path} is not valid YAML: {error}") from None
    model = _mapping(content)
    flavors = _mapping(model.get("flavors"))
    if "onnx" not in flavors:
        advice = next((_ADVICE[name] for name in flavors if name in _ADVICE), _OTHER_ADVICE)
        names = ", ".join(map(str, flavors)) or "none"
        raise ModelError(f"{path}: Expected the flavor onnx, got {names}; {advice}")
    onnx = _mapping(flavors["onnx"])
    ignored = [f"flavors.onnx.{name}" for name, value in onnx.items() if value and name not in _READ]
    return ImportedConfig(
        file=MLFLOW_FILE,
        settings={"runtime": "onnxruntime", "uri": str(onnx.get("data") or "model.onnx")},
        ignored=(*ignored, *(["signature"] if model.get("signature") else [])),
    )


def _mapping(value: object) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
