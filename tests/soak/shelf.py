"""The model repository of a run: copies of the fixture models, and what the faults do to some of them."""

import shutil
from pathlib import Path

from tests.soak.references import ROOT

__all__ = (
    "ADDENDS",
    "BREAKABLE",
    "ISOLATED",
    "MOVABLE",
    "PICTURED",
    "POISON",
    "REPLACED",
    "UNLOADED",
    "Shelf",
)

PICTURED = ("classifier", "detector", "oriented-detector", "segmenter")
UNLOADED = "unloaded"
"""Is unloaded and loaded again."""
REPLACED = "replaced"
"""Its file is replaced by that of another model, and back."""
BREAKABLE = "broken"
"""Its file is replaced by rubbish, and back: what serves is to go on serving."""
MOVABLE = "moved"
"""Its folder is taken away, and brought back."""
ISOLATED = "isolated"
"""A Python class in a process of its own, which ends it when it is sent `POISON`."""
POISON = -666.0
ADDENDS = {"two": 2.0, "three": 3.0}
"""What the models `half_plus_*` add to half of what they are sent."""

_MODELS = ROOT / "fixtures" / "models"
_PLAIN = (*PICTURED, "vlm", "greeter", "half_plus_two")
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


class Shelf:
    """A folder of models.

    Args:
        folder: where it is made.

    Attributes:
        folder: the model repository.
        allowed: of the model that is replaced, the addends that an answer may have now.
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
        """Put another model in the place of the one that is replaced; both may answer until `settled`."""
        self.allowed |= {ADDENDS[addend]}
        self._put(REPLACED, (_MODELS / f"half_plus_{addend}" / "model.onnx").read_bytes())

    def settled(self, addend: str) -> None:
        """Only the new one may answer any more."""
        self.allowed = frozenset({ADDENDS[addend]})

    def break_file(self, content: bytes) -> None:
        """Put rubbish in the place of a model's file."""
        self._put(BREAKABLE, content)

    def mend(self) -> None:
        """Put the file back."""
        self._put(BREAKABLE, (_MODELS / "half_plus_two" / "model.onnx").read_bytes())

    def take_away(self) -> None:
        """Hide a model's folder from the server."""
        (self.folder / MOVABLE).rename(self.folder / f".{MOVABLE}")

    def bring_back(self) -> None:
        """Show it again."""
        (self.folder / f".{MOVABLE}").rename(self.folder / MOVABLE)

    def _put(self, model: str, content: bytes) -> None:
        """In one step, as who replaces a model that serves has to do it."""
        part = self.folder / model / ".part"
        part.write_bytes(content)
        part.replace(self.folder / model / "model.onnx")
