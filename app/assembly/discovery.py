"""From a path to the models below it."""

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from app.engine.registry import version_order
from app.runtimes import RUNTIMES
from app.settings.model import SETTINGS_FILE, ModelError, ModelSettings, ModelSource, read_settings

__all__ = ("discover", "model_at", "models_in")

_VERSION = re.compile(r"v?\d+(\.\d+)*", re.ASCII)
_LONGEST_NAME = 255
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
            _source(each, _version_settings(each, shared), name, _version_name(each), root=path)
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
        return [ModelSource(name=_printable(folder.name), version="1", folder=folder, fault=_printable(str(error)))]


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


def _source(
    folder: Path, settings: ModelSettings, name: str, version: str, file: Path | None = None, root: Path | None = None
) -> ModelSource:
    if file is None and settings.uri is not None:
        file = _below(folder, settings.uri)
    found = ModelSource(
        name=settings.name or name,
        version=settings.version or version,
        folder=folder,
        file=file,
        settings=settings,
        root=root,
    )
    for what, value in (("name", found.name), ("version", found.version), ("chariot_id", settings.chariot_id)):
        if value is not None and not _is_fit(value):
            expected = f"Expected up to {_LONGEST_NAME} printed characters without slashes"
            raise ModelError(f"{folder}: {what}: {expected}, got {value!r}")
    return found


def _below(folder: Path, uri: str) -> Path:
    """The file that settings name. Whether a link leads it elsewhere is looked at when the model is loaded."""
    relative = PurePosixPath(uri)
    if not uri.isprintable() or relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise ModelError(f"{folder / SETTINGS_FILE}: uri: Expected a file below the folder, got {uri!r}")
    return folder / relative


def _is_fit(name: str) -> bool:
    """Whether a name can stand in a path, a URL and a line of a log without being more than a name."""
    return name.isprintable() and len(name) <= _LONGEST_NAME and name not in (".", "..") and not {"/", "\\"} & {*name}


def _printable(text: str) -> str:
    return "".join(each if each.isprintable() else "\N{REPLACEMENT CHARACTER}" for each in text)
