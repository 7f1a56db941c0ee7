"""The files of a model's folder, judged before a framework sees them."""

from collections.abc import Mapping
from pathlib import Path
from typing import cast

import msgspec

from app.settings.model import ModelError, ModelSource, read_json_file

__all__ = ("check_files", "is_model_folder")

_CONFIG = "config.json"
_WEIGHTS = ".safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_ADAPTER = "adapter_config.json"
_WITH_CODE = (
    _CONFIG,
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer_config.json",
    "video_preprocessor_config.json",
)
_IMPLEMENTATIONS = ("attn_implementation", "_attn_implementation", "experts_implementation", "_experts_implementation")
_DEEPEST = 32


class _Index(msgspec.Struct, frozen=True):
    weight_map: Mapping[str, str] = {}


def is_model_folder(source: ModelSource) -> bool:
    """Whether there is a config.json beside weights, by their names: such that are served, or such to be refused."""
    if source.file is not None and source.file.suffix not in (_WEIGHTS, *_PICKLES):
        return False
    return (source.folder / _CONFIG).is_file() and bool(_weights(source.folder, (_WEIGHTS, *_PICKLES)))


def check_files(source: ModelSource) -> None:
    """Refuse what would run code, and what is not there.

    Raises:
        ModelError: for pickles without safetensors beside them, Python code of the model's own or of a hub, weights
            that are missing, a Git LFS pointer, or not files of this folder, and adapters of another model.
    """
    folder = source.folder
    if not (folder / _CONFIG).is_file():
        raise ModelError(f"{folder / _CONFIG} is missing")
    weights = _weights(folder, (_WEIGHTS,))
    if not weights:
        pickles = _weights(folder, _PICKLES)
        if pickles:
            raise ModelError(
                f"{pickles[0]} is a pickle, which can run any code when it is read; "
                "only safetensors are loaded: save the model with save_pretrained(folder, safe_serialization=True)"
            )
        raise ModelError(f"{folder} has no weights: expected a .safetensors file")
    for path in weights:
        with path.open("rb") as opened:
            if opened.read(19) == b"version https://git":
                raise ModelError(f"{path} is a Git LFS pointer, not the weights; fetch them with `git lfs pull`")
    for name in _WITH_CODE:
        path = folder / name
        if path.is_file():
            _check_code(path, read_json_file(path, dict[str, object]), 0)
    for path in sorted(folder.glob(f"*{_WEIGHTS}.index.json")):
        _check_shards(path)
    if (folder / _ADAPTER).is_file():
        raise ModelError(
            f"{folder / _ADAPTER} says that these are adapters of another model; merge them into its weights and save "
            "the whole with save_pretrained"
        )


def _check_code(path: Path, value: object, depth: int) -> None:
    """Refuse names of code anywhere in a configuration: parts of a model have configurations of their own."""
    if depth > _DEEPEST:
        raise ModelError(f"{path} is nested deeper than {_DEEPEST} times")
    match value:
        case dict():
            fields = cast("dict[str, object]", value)
            if fields.get("auto_map"):
                raise ModelError(f"{path} names Python code of the model's own (auto_map), which is not run")
            for name in _IMPLEMENTATIONS:
                # A name with a slash is a repository on a hub, with machine code in it.
                if "/" in str(fields.get(name)):
                    raise ModelError(f"{path} names code of a hub ({name}), which is not run")
            for each in fields.values():
                _check_code(path, each, depth + 1)
        case list():
            for each in cast("list[object]", value):
                _check_code(path, each, depth + 1)
        case _:
            pass


def _check_shards(path: Path) -> None:
    """Refuse an index of weights that names what is no safetensors file beside it."""
    shards = read_json_file(path, _Index).weight_map
    for name in sorted(set(shards.values())):
        if name != Path(name).name or not name.endswith(_WEIGHTS):
            raise ModelError(f"{path} names weights in {name[:200]!r}; expected {_WEIGHTS} files beside it")


def _weights(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.suffix in suffixes and each.is_file())
