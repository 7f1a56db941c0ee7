"""Where the graph of a model lies."""

from collections.abc import Sequence
from pathlib import Path

from app.settings.model import ModelError, ModelSource

__all__ = ("find_graphs", "locate_graph")

_SUFFIX = ".onnx"
_USUAL_NAME = "model.onnx"


def find_graphs(source: ModelSource) -> Sequence[Path]:
    """The files that may be the model: the one named, else ``model.onnx`` or all ``.onnx`` files of the folder.

    A folder without any may have them in ``onnx/``, as repositories of Hugging Face do.
    """
    if source.file is not None:
        return [source.file] if source.file.suffix.lower() == _SUFFIX else []
    for folder in (source.folder, source.folder / "onnx"):
        found = _graphs(folder)
        usual = folder / _USUAL_NAME
        if found:
            return [usual] if usual in found else found
    return []


def locate_graph(source: ModelSource) -> Path:
    """The file that is the model.

    Raises:
        ModelError: when there is none, or several of which none is called ``model.onnx``.
    """
    match find_graphs(source):
        case [only]:
            return only
        case [] if source.file is not None:
            raise ModelError(f"{source.file} is not an .onnx file")
        case []:
            raise ModelError(f"{source.folder} holds no .onnx file")
        case several:
            names = ", ".join(each.name for each in several)
            raise ModelError(
                f'{source.folder} holds several models ({names}); name one as "uri" in model-settings.json'
            )


def _graphs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(each for each in folder.iterdir() if each.suffix.lower() == _SUFFIX and each.is_file())
