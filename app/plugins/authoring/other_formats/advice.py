"""What to do with the files of frameworks that no runtime reads by itself."""

from pathlib import Path

from app.core.runtimes.python.model_code import read_classes
from app.core.settings.model import SETTINGS_FILE, ModelError

_PAGE = "docs/python_models.md"


def _recipe(description: str, anchor: str) -> str:
    """Return the advice for a format with a recipe; `anchor` is its heading."""
    return f"is {description}: write a Python class that loads it, as in {_PAGE}#{anchor}"


def _other(description: str) -> str:
    return f"is {description}: convert it to ONNX, or write a Python class that loads it, see {_PAGE}#recipes"


_CHECKPOINT = (
    "is a PyTorch file: export the model to ONNX (torch.onnx.export, or `yolo export format=onnx`); for "
    f"TorchScript write a Python class, as in {_PAGE}#torchscript"
)
_ADVICE = {
    ".tflite": _recipe("a TFLite model", "tflite"),
    ".pt2": _recipe("a program of torch.export", "torchexport"),
    ".joblib": _recipe("a joblib file, such as scikit-learn's", "scikit-learn"),
    **dict.fromkeys((".ts", ".torchscript"), _recipe("TorchScript", "torchscript")),
    **dict.fromkeys((".pkl", ".pickle"), _recipe("a pickle, such as scikit-learn's", "scikit-learn")),
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), _CHECKPOINT),
    **dict.fromkeys((".h5", ".keras"), _other("a Keras model")),
    ".pb": _other("a TensorFlow graph"),
    ".engine": _other("a TensorRT engine"),
    **dict.fromkeys((".mlmodel", ".mlpackage"), _other("a Core ML model")),
    ".pdmodel": _other("a Paddle model"),
}
"""By suffix."""


_MODEL_FILE = "model.py"


def advice_for(file: Path) -> str:
    """Return what a file is and how to serve it, after its path in an error; "" for unknown formats."""
    if file.name == _MODEL_FILE:
        return _class_advice(file)
    return _ADVICE.get(file.suffix.lower(), "")


def _class_advice(file: Path) -> str:
    """Return which settings the first class with ``predict`` in a file needs; "" without one. The file is not run."""
    settings = file.with_name(SETTINGS_FILE)
    try:
        classes = read_classes(file)
    except ModelError:
        return ""
    for name, defined in classes.items():
        if "predict" in defined:
            declares_task = "task_type" in defined
            task = "" if declares_task else ', "task_type": "OBJECT_DETECTION"'
            other_task = "" if declares_task else " or another task type"
            verb = "add" if settings.is_file() else "write"
            return (
                f"has a Python class, which needs a line in its settings: {verb} "
                f'{{"implementation": "model:{name}"{task}}}{other_task} to {settings}, see {_PAGE}'
            )
    return ""
