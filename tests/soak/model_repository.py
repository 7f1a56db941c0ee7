"""Create the model repository of a run from fixture models, and change models for faults."""

import shutil
from pathlib import Path

from tests.soak.references import ROOT

IMAGE_MODELS = ("classifier", "detector", "oriented-detector", "segmenter")
UNLOADED = "unloaded"
"""Is unloaded and loaded again."""
REPLACED = "replaced"
"""Its file is replaced by that of another model, and back."""
BREAKABLE = "broken"
"""Its file is replaced by rubbish, and back; the loaded version must keep serving."""
MOVABLE = "moved"
"""Its folder is hidden, and shown again."""
ISOLATED = "isolated"
"""An isolated Python model whose process crashes when it receives `POISON`."""
POISON = -666.0
ADDENDS = {"two": 2.0, "three": 3.0}
"""The constants that the models `half_plus_*` add to half of their input."""

_MODELS = ROOT / "fixtures" / "models"
_PLAIN = (*IMAGE_MODELS, "vlm", "greeter", "half_plus_two")
_CLASS = '''"""x / 2 + 2, until it is sent the number that ends its process."""

import ctypes


class Model:
    inputs = {"x": ("FP32", (-1,))}
    outputs = {"y": ("FP32", (-1,))}

    def predict(self, tensors):
        if (tensors["x"] == -666.0).any():
            ctypes.string_at(0)
        return {"y": tensors["x"] / 2 + 2}
'''
_SETTINGS = '{"implementation": "model:Model", "task_type": "TENSOR", "isolate": true}'


class ModelRepository:
    """A folder of models.

    Args:
        folder: created for the models.

    Attributes:
        folder: the model repository.
        allowed: the constants that `REPLACED` may currently add.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.allowed = frozenset({ADDENDS["two"]})
        for name in _PLAIN:
            shutil.copytree(_MODELS / name, folder / name)
        for name in (UNLOADED, REPLACED, BREAKABLE, MOVABLE):
            shutil.copytree(_MODELS / "half_plus_two", folder / name)
        (folder / ISOLATED).mkdir()
        (folder / ISOLATED / "model.py").write_text(_CLASS)
        (folder / ISOLATED / "model-settings.json").write_text(_SETTINGS)

    def replace(self, addend: str) -> None:
        """Replace the file of a model; both versions may answer until `finish_replacement`."""
        self.allowed |= {ADDENDS[addend]}
        self._put(REPLACED, (_MODELS / f"half_plus_{addend}" / "model.onnx").read_bytes())

    def finish_replacement(self, addend: str) -> None:
        """Allow only the new version to answer."""
        self.allowed = frozenset({ADDENDS[addend]})

    def break_file(self, content: bytes) -> None:
        """Replace a model's file by rubbish."""
        self._put(BREAKABLE, content)

    def restore_file(self) -> None:
        """Restore the model's file."""
        self._put(BREAKABLE, (_MODELS / "half_plus_two" / "model.onnx").read_bytes())

    def hide_folder(self) -> None:
        """Hide a model's folder from the server."""
        (self.folder / MOVABLE).rename(self.folder / f".{MOVABLE}")

    def show_folder(self) -> None:
        """Show the model's folder again."""
        (self.folder / f".{MOVABLE}").rename(self.folder / MOVABLE)

    def _put(self, model: str, content: bytes) -> None:
        """Replace the file atomically, as users must."""
        part = self.folder / model / ".part"
        part.write_bytes(content)
        part.replace(self.folder / model / "model.onnx")
