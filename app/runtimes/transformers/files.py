"""The files of a model's folder, judged before a framework sees them."""

from pathlib import Path

from app.settings.model import ModelError, ModelSource, read_json_file

__all__ = ("check_files", "is_model_folder")

_CONFIG = "config.json"
_WEIGHTS = ".safetensors"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt", ".pkl")
_WITH_CODE = (_CONFIG, "preprocessor_config.json", "processor_config.json", "tokenizer_config.json")


def is_model_folder(source: ModelSource) -> bool:
    """Whether there is a config.json beside weights, by their names: such that are served, or such to be refused."""
    if source.file is not None and source.file.suffix not in (_WEIGHTS, *_PICKLES):
        return False
    return (source.folder / _CONFIG).is_file() and bool(_weights(source.folder, (_WEIGHTS, *_PICKLES)))


def check_files(source: ModelSource) -> None:
    """Refuse what would run code, and what is not there.

    Raises:
        ModelError: for pickles without safetensors beside them, Python code of the model's own, weights that are
            missing or a Git LFS pointer.
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
        if path.is_file() and read_json_file(path, dict[str, object]).get("auto_map"):
            raise ModelError(f"{path} names Python code of the model's own (auto_map), which is not run")


def _weights(folder: Path, suffixes: tuple[str, ...]) -> list[Path]:
    return sorted(each for each in folder.iterdir() if each.suffix in suffixes and each.is_file())
