"""Find the graph of a model, and check its first bytes."""

from collections.abc import Sequence
from pathlib import Path

from app.core.runtimes.foreign_formats import advice_for
from app.core.settings.model import ModelError, ModelSource

_SUFFIX = ".onnx"
_DEFAULT_NAME = "model.onnx"

_LFS_POINTER = b"version https://git-lfs"
_PICKLES = (b"PK\x03\x04", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
"""First bytes of ``torch.save`` files, which are zipped or bare pickles."""


def find_graphs(source: ModelSource) -> Sequence[Path]:
    """Return the files that may be the model: the named file, else ``model.onnx``, else all ``.onnx`` files.

    If the folder has none, search its subfolder ``onnx``, which Hugging Face repositories use, and ``model.onnx``,
    which Triton's use for graphs with external data.
    """
    if source.file is not None:
        return [source.file] if source.file.suffix.lower() == _SUFFIX else []
    for folder in (source.folder, source.folder / "onnx", source.folder / _DEFAULT_NAME):
        graphs = sorted(file for file in folder.glob("*") if file.suffix.lower() == _SUFFIX and file.is_file())
        if graphs:
            default_graph = folder / _DEFAULT_NAME
            return [default_graph] if default_graph in graphs else graphs
    return []


def locate_graph(source: ModelSource) -> Path:
    """Return the file of the model.

    Raise ModelError if there is none, or there are several and none has the name ``model.onnx``.
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


def check_graph_file(file: Path) -> None:
    """Reject a file that is missing, unreadable, empty, or of a known other format by its first bytes.

    Raise ModelError naming the file and the reason.
    """
    if not file.is_file():
        raise ModelError(f"{file} does not exist" if not file.exists() else f"{file} is not a file")
    try:
        with file.open("rb") as opened:
            start = opened.read(len(_LFS_POINTER))
    except OSError as error:
        raise ModelError(f"{file} cannot be read: {error.strerror}") from None
    if not start:
        raise ModelError(f"{file} is empty")
    if start.startswith(_PICKLES):
        raise ModelError(
            f"{file} is a PyTorch pickle, not an ONNX file; it is not loaded, because a pickle can run code; "
            f"export the model to ONNX, or see docs/python_models.md#torchscript"
        )
    if start == _LFS_POINTER:
        raise ModelError(f"{file} is a Git LFS pointer, not the model itself; fetch it with `git lfs pull`")
