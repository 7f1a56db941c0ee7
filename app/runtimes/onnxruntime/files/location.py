"""Find the graph of a model."""

from collections.abc import Sequence
from pathlib import Path

from app.runtimes.other_formats import advice_for
from app.settings.model import ModelError, ModelSource

_SUFFIX = ".onnx"
_DEFAULT_NAME = "model.onnx"


def find_graphs(source: ModelSource) -> Sequence[Path]:
    """Return the files that may be the model: the named file, else ``model.onnx``, else all ``.onnx`` files.

    If the folder has none, search its subfolder ``onnx``, which Hugging Face repositories use, and ``model.onnx``,
    which Triton's use for graphs with external data.
    """
    if source.file is not None:
        return [source.file] if source.file.suffix.lower() == _SUFFIX else []
    for folder in (source.folder, source.folder / "onnx", source.folder / _DEFAULT_NAME):
        graphs = _graphs(folder)
        default_graph = folder / _DEFAULT_NAME
        if graphs:
            return [default_graph] if default_graph in graphs else graphs
    return []


def locate_graph(source: ModelSource) -> Path:
    """Return the file of the model.

    Raises:
        ModelError: if there is none, or there are several and none has the name ``model.onnx``.
    """
    match find_graphs(source):
        case [only]:
            return only
        case [] if source.file is not None:
            raise ModelError(f"{source.file} {advice_for(source.file) or 'is not an .onnx file'}")
        case []:
            raise ModelError(f"{source.folder} contains no .onnx file")
        case several:
            names = ", ".join(file.name for file in several)
            raise ModelError(
                f'{source.folder} contains several models ({names}); select one with "uri" in model-settings.json'
            )


def _graphs(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    return sorted(file for file in folder.iterdir() if file.suffix.lower() == _SUFFIX and file.is_file())
