"""From a path to the models below it."""

import re
from collections.abc import Sequence
from pathlib import Path

from app.engine.registry import version_order
from app.runtimes import RUNTIMES
from app.settings.model import SETTINGS_FILE, ModelError, ModelSettings, ModelSource, read_settings

__all__ = ("discover", "model_at", "models_in")

_VERSION = re.compile(r"v?\d+(\.\d+)*")
_WANTED = f"an .onnx file, a config.json of Hugging Face beside weights, or a {SETTINGS_FILE}"


def discover(path: Path) -> Sequence[ModelSource]:
    """The models at `path`, which may be a model file, a model's folder, or a folder of such folders.

    Raises:
        ModelError: when there is none.
    """
    if path.is_dir() and not _is_model(path) and not _versions(path):
        return models_in(path)
    return model_at(path)


def model_at(path: Path) -> Sequence[ModelSource]:
    """Every version of the one model at `path`, a model file or a model's folder.

    Raises:
        ModelError: when there is none.
    """
    if path.is_file():
        settings = read_settings(path.parent)
        return [
            _source(path.parent, settings, path.stem if path.stem != "model" else path.resolve().parent.name, "1", path)
        ]
    if not path.is_dir():
        raise ModelError(f"{path} is neither a model file nor a folder")
    versions = _versions(path)
    if versions:
        shared = read_settings(path)
        name = path.resolve().name
        return [
            _source(each, _version_settings(each, shared), name, _version_name(each))
            for each in _served_versions(path, versions, shared)
        ]
    if _is_model(path):
        return [_source(path, read_settings(path), path.resolve().name, "1")]
    raise ModelError(f"{path} holds no model: expected {_WANTED}, or version folders with one of them")


def models_in(repository: Path) -> Sequence[ModelSource]:
    """Every version of every model in `repository`, which has a folder for each model.

    A model whose settings cannot be understood is among them, with its `fault`, so that the others are served.

    Raises:
        ModelError: when there is none.
    """
    if not repository.is_dir():
        raise ModelError(f"{repository} is not a folder")
    folders = [each for each in sorted(repository.iterdir()) if each.is_dir() and not each.name.startswith(".")]
    sources = [source for each in folders if _is_model(each) or _versions(each) for source in _among_others(each)]
    if not sources:
        raise ModelError(f"{repository} holds no models: expected a folder for each, with {_WANTED}")
    return sources


def _among_others(folder: Path) -> Sequence[ModelSource]:
    try:
        return model_at(folder)
    except ModelError as error:
        return [ModelSource(name=folder.name, version="1", folder=folder, fault=str(error))]


def _is_model(folder: Path) -> bool:
    if (folder / SETTINGS_FILE).is_file() and not _versions(folder):
        return True
    source = ModelSource(name=folder.name, version="1", folder=folder)
    return any(runtime.recognises(source) for runtime in RUNTIMES)


def _versions(folder: Path) -> list[Path]:
    candidates = [each for each in sorted(folder.iterdir()) if each.is_dir() and _VERSION.fullmatch(each.name)]
    return [each for each in candidates if _is_model(each)]


def _served_versions(path: Path, versions: Sequence[Path], settings: ModelSettings) -> Sequence[Path]:
    """The version folders that the settings of the model want served."""
    match settings.versions:
        case "all":
            return versions
        case "latest":
            return [max(versions, key=lambda each: version_order(_version_name(each)))]
        case wanted:
            missing = set(wanted) - {_version_name(each) for each in versions}
            if missing:
                raise ModelError(f"{path / SETTINGS_FILE}: versions: There is no version {', '.join(sorted(missing))}")
            return [each for each in versions if _version_name(each) in wanted]


def _version_name(folder: Path) -> str:
    return folder.name.removeprefix("v")


def _version_settings(folder: Path, shared: ModelSettings) -> ModelSettings:
    return read_settings(folder) if (folder / SETTINGS_FILE).is_file() else shared


def _source(folder: Path, settings: ModelSettings, name: str, version: str, file: Path | None = None) -> ModelSource:
    if file is None and settings.uri is not None:
        file = folder / settings.uri
        if not file.resolve().is_relative_to(folder.resolve()):
            raise ModelError(f"{folder / SETTINGS_FILE}: uri: Expected a file below the folder, got {settings.uri!r}")
    return ModelSource(
        name=settings.name or name, version=settings.version or version, folder=folder, file=file, settings=settings
    )
