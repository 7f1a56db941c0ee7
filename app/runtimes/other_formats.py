"""What to do with the files of frameworks that no runtime reads by itself."""

from pathlib import Path

_PAGE = "docs/python_models.md"


def _recipe(description: str, kind: str, anchor: str) -> str:
    """Return the advice for a value of ``charioteer init --from``; `anchor` is the heading of the recipe."""
    command = f"run `charioteer init NAME --from {kind} --file {{file}}`"
    if kind != "sklearn":
        command += ", with --task for another task than IMAGE_CLASSIFICATION"
    return f"is {description}, which a Python class can serve: {command}, or see {_PAGE}#{anchor}"


def _other(description: str) -> str:
    return f"is {description}: convert it to ONNX, or write a Python class that loads it: see {_PAGE}#recipes"


_CHECKPOINT = (
    "is a PyTorch file: export the model to ONNX (torch.onnx.export, or `yolo export format=onnx`); for "
    f"TorchScript run `charioteer init NAME --from torchscript --file {{file}}`, or see {_PAGE}#torchscript"
)
_ADVICE = {
    ".tflite": _recipe("a TFLite model", "tflite", "tflite"),
    ".pt2": _recipe("a program of torch.export", "torch-export", "torchexport"),
    ".joblib": _recipe("a joblib file, such as scikit-learn's", "sklearn", "scikit-learn"),
    **dict.fromkeys((".ts", ".torchscript"), _recipe("TorchScript", "torchscript", "torchscript")),
    **dict.fromkeys((".pkl", ".pickle"), _recipe("a pickle, such as scikit-learn's", "sklearn", "scikit-learn")),
    **dict.fromkeys((".pt", ".pth", ".ckpt", ".bin"), _CHECKPOINT),
    **dict.fromkeys((".h5", ".keras"), _other("a Keras model")),
    ".pb": _other("a TensorFlow graph"),
    ".engine": _other("a TensorRT engine"),
    **dict.fromkeys((".mlmodel", ".mlpackage"), _other("a Core ML model")),
    ".pdmodel": _other("a Paddle model"),
}
"""By suffix."""


def advice_for(file: Path) -> str:
    """Return what a file is and how to serve it, after its path in an error; "" for unknown formats."""
    return _ADVICE.get(file.suffix.lower(), "").format(file=file)


def advice_in(folder: Path) -> str:
    """Return the end of an error about a folder: advice for its first file of another framework; "" if none has one."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if advice := advice_for(file):
            return f"; {file} {advice}"
    return ""
