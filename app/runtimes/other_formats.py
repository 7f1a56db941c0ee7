"""What to do with the files of frameworks that no runtime reads by itself."""

from pathlib import Path

_RECIPES = {
    ".tflite": ("a TFLite model", "tflite", "tflite"),
    ".ts": ("TorchScript", "torchscript", "torchscript"),
    ".torchscript": ("TorchScript", "torchscript", "torchscript"),
    ".pt2": ("a program of torch.export", "torch-export", "torchexport"),
    ".joblib": ("a joblib file, such as scikit-learn's", "sklearn", "scikit-learn"),
    ".pkl": ("a pickle, such as scikit-learn's", "sklearn", "scikit-learn"),
    ".pickle": ("a pickle, such as scikit-learn's", "sklearn", "scikit-learn"),
}
"""By suffix: a description, the value of ``charioteer init --from``, and the recipe's heading as an anchor."""
_CHECKPOINTS = (".pt", ".pth", ".ckpt", ".bin")
_OTHERS = {
    ".h5": "a Keras model",
    ".keras": "a Keras model",
    ".pb": "a TensorFlow graph",
    ".engine": "a TensorRT engine",
    ".mlmodel": "a Core ML model",
    ".mlpackage": "a Core ML model",
    ".pdmodel": "a Paddle model",
}
_PAGE = "docs/python_models.md"


def advice_for(file: Path) -> str:
    """Return what a file is and how to serve it, after its path in an error; "" for unknown formats."""
    suffix = file.suffix.lower()
    if suffix in _RECIPES:
        description, kind, anchor = _RECIPES[suffix]
        return (
            f"is {description}, which a Python class can serve: run `charioteer init NAME --from {kind} "
            f"--file {file}`, or see {_PAGE}#{anchor}"
        )
    if suffix in _CHECKPOINTS:
        return (
            "is a PyTorch file: export the model to ONNX (torch.onnx.export, or `yolo export format=onnx`); for "
            f"TorchScript run `charioteer init NAME --from torchscript --file {file}`, or see {_PAGE}#torchscript"
        )
    if suffix in _OTHERS:
        return f"is {_OTHERS[suffix]}: convert it to ONNX, or write a Python class that loads it: see {_PAGE}#recipes"
    return ""


def advice_in(folder: Path) -> str:
    """Return the end of an error about a folder: advice for its first file of another framework; "" if none has one."""
    for file in sorted(folder.iterdir()) if folder.is_dir() else ():
        if advice := advice_for(file):
            return f"; {file} {advice}"
    return ""
