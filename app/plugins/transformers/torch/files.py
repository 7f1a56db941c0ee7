"""Check the files of a model's folder before a framework reads them."""

from collections.abc import Mapping
from pathlib import Path

import msgspec

from app.core.settings.model import ModelError, ModelSource, read_json_file
from app.plugins.transformers.text.library import check_configurations

_CONFIG = "config.json"
_WEIGHTS = ".safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_ADAPTER = "adapter_config.json"


class _Index(msgspec.Struct, frozen=True):
    weight_map: Mapping[str, str] = {}


def is_model_folder(source: ModelSource) -> bool:
    """Return whether the folder has a config.json and weights, in a supported format or not."""
    if source.file is not None and source.file.suffix not in (_WEIGHTS, *_PICKLES):
        return False
    return (source.folder / _CONFIG).is_file() and bool(_weights(source.folder, (_WEIGHTS, *_PICKLES)))


def check_files(source: ModelSource) -> None:
    """Reject files that could run code, and incomplete models.

    Raise ModelError for pickles without safetensors, Python code of the model or of a hub, missing weights, Git LFS
    pointers, weights outside the folder, and adapters of another model.
    """
    folder = source.folder
    weights = _weights(folder, (_WEIGHTS,))
    if not weights:
        pickles = _weights(folder, _PICKLES)
        if pickles:
            raise ModelError(
                f"{pickles[0]} is a pickle, which can run any code when it is loaded; "
                "only safetensors are supported: save the model with save_pretrained(folder, safe_serialization=True)"
            )
        raise ModelError(f"{folder} has no weights: expected a .safetensors file")
    for path in weights:
        with path.open("rb") as opened:
            if opened.read(19) == b"version https://git":
                raise ModelError(f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    check_configurations(folder)
    for path in sorted(folder.glob(f"*{_WEIGHTS}.index.json")):
        for name in sorted(set(read_json_file(path, _Index).weight_map.values())):
            if name != Path(name).name or not name.endswith(_WEIGHTS):
                raise ModelError(f"{path} names weights in {name[:200]!r}; expected {_WEIGHTS} files beside it")
    if (folder / _ADAPTER).is_file():
        raise ModelError(
            f"{folder / _ADAPTER} shows that these are adapters of another model; merge them into its weights and save "
            "the merged model with save_pretrained"
        )


def _weights(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(file for file in folder.iterdir() if file.suffix in suffixes and file.is_file())
