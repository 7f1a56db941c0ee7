"""Recognise the ``model-settings.json`` of MLServer, which has the name of ours."""

from pathlib import Path

import msgspec

from app.settings.model import ModelError, read_json_file

__all__ = ("refuse_mlserver_runtime",)

_ADVICE = {
    "mlserver_huggingface": "write the model with save_pretrained, and serve its folder without this file",
    "mlserver_mlflow": "serve the folder of the MLmodel without this file, if it has the flavor onnx",
    "mlserver_sklearn": "write a class for it with `charioteer init NAME --from sklearn --file FILE`",
}
_OTHER_ADVICE = (
    "export the model to ONNX, or write a class with predict and name it, as in "
    '"implementation": "model:Model" (docs/python_models.md)'
)


class _Settings(msgspec.Struct, frozen=True):
    implementation: object = None


def refuse_mlserver_runtime(path: Path) -> None:
    """Reject settings for one of MLServer's own runtimes. Other settings are left to the usual checks.

    Raises:
        ModelError: with what to do instead.
    """
    try:
        declared = read_json_file(path, _Settings).implementation if path.is_file() else None
    except ModelError:
        return
    if isinstance(declared, str) and declared.startswith("mlserver_"):
        advice = _ADVICE.get(declared.partition(".")[0], _OTHER_ADVICE)
        raise ModelError(f"{path}: implementation: {declared} is a runtime of MLServer, which is not here; {advice}")
