"""Find the models below a path."""

import os
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath

import msgspec

from app.core.engine.models.registry import version_sort_key
from app.core.plugins import registry
from app.core.runtimes.foreign_formats import advice_in
from app.core.runtimes.python.model_code import read_classes
from app.core.settings.model import (
    SETTINGS_FILE,
    ImportedConfig,
    ModelError,
    ModelSettings,
    ModelSource,
    read_json_file,
    read_settings,
)

_VERSION = re.compile(r"v?\d+(\.\d+)*", re.ASCII)
_MAX_NAME_LENGTH = 255
_EXPECTED_NAME = f"Expected 1 to {_MAX_NAME_LENGTH} printable characters without slashes"
_MODEL_FILES = f"an .onnx file, a config.json of Hugging Face beside weights, or a {SETTINGS_FILE}"


def discover(path: Path) -> Sequence[ModelSource]:
    """Return the models at `path`: a model file, a model folder, or a folder of model folders.

    Raise ModelError when there is no model.
    """
    if path.is_dir() and not _is_model(path) and not _versions(path):
        return models_in(path)
    return model_at(path)


def model_at(path: Path) -> Sequence[ModelSource]:
    """Return every version of the one model at `path`, a model file or a model folder.

    Raise ModelError when there is no model.
    """
    if path.is_file():
        settings = _own_settings(path.parent)
        if path.suffix == ".py" and settings.implementation is None:
            settings = msgspec.structs.replace(settings, implementation=f"{path.stem}:{_model_class(path)}")
        name = path.stem if path.stem != "model" else _name(path.parent)
        return [_source(path.parent, settings, name, "1", path)]
    if not path.is_dir():
        raise ModelError(f"{path} is neither a model file nor a folder")
    shared, imported = _read_settings(path)
    versions = _versions(path)
    if versions:
        served = _served_versions(path, versions, shared)
        own = {folder: _read_settings(folder)[0] for folder in served if (folder / SETTINGS_FILE).is_file()}
        sources = [
            _source(folder, own.get(folder, shared), _name(path), _version_name(folder), root=path) for folder in served
        ]
    elif _is_model(path):
        sources = [_source(path, shared, _name(path), "1")]
    else:
        if any(_sources_in(folder) for folder in _model_folders(path)):
            raise ModelError(f"{path} is a folder of models, not a model; give one of them, or use --model-repository")
        raise ModelError(
            f"{path} holds no model: expected {_MODEL_FILES}, or version folders with one of them{advice_in(path)}"
        )
    return [msgspec.structs.replace(source, imported=imported) for source in sources]


def _model_class(path: Path) -> str:
    """Return the name of the only class with ``predict`` in a Python file, or else of its only class. Run no code.

    Raise ModelError when there is no such class, or several.
    """
    classes = read_classes(path)
    found = [name for name, defined in classes.items() if "predict" in defined] or [*classes]
    if len(found) == 1:
        return found[0]
    names = f"several: {', '.join(found)}" if found else "none"
    advice = f'"implementation": "{path.stem}:Class" in {path.parent / SETTINGS_FILE} names one'
    raise ModelError(f"{path}: Expected one class with the method predict, got {names}; {advice}")


def latest_version(sources: Sequence[ModelSource]) -> ModelSource:
    """Return the latest version of the model whose versions are `sources`."""
    return max(sources, key=lambda source: version_sort_key(source.version))


def models_in(repository: Path) -> Sequence[ModelSource]:
    """Return every version of every model in `repository`, which has one folder for each model.

    A model with unreadable settings is included with its `fault`, so that the other models are served. Folders that
    cannot be read are ignored. Raise ModelError when there is no model.
    """
    if not repository.is_dir():
        raise ModelError(f"{repository} is not a folder")
    folders = _model_folders(repository)
    sources = [source for folder in folders for source in _sources_in(folder)]
    if not sources:
        advice = next((advice for folder in (repository, *folders) if (advice := advice_in(folder))), "")
        raise ModelError(f"{repository} holds no models: expected a folder for each, with {_MODEL_FILES}{advice}")
    return sources


def name_only_model(sources: Sequence[ModelSource], name: str) -> Sequence[ModelSource]:
    """Return the versions of the one model in `sources` under another name. Several models keep their own names.

    Raise ModelError when the name is not valid.
    """
    if not _is_safe_name(name):
        raise ModelError(f"--model-name: {_EXPECTED_NAME}, got {name!r}")
    if len({source.name for source in sources}) > 1:
        return sources
    return [msgspec.structs.replace(source, name=name) for source in sources]


def _model_folders(repository: Path) -> Sequence[Path]:
    folders = [path for path in sorted(repository.iterdir()) if path.is_dir() and not path.name.startswith(".")]
    # Volumes have a folder lost+found that only root can read.
    return [path for path in folders if os.access(path, os.R_OK | os.X_OK, effective_ids=True)]


def _sources_in(folder: Path) -> Sequence[ModelSource]:
    """Return the versions of the model in a folder, none if there is no model, or one with its fault."""
    try:
        return model_at(folder) if _is_model(folder) or _versions(folder) else ()
    except (ModelError, OSError) as error:
        return [ModelSource(name=_printable(folder.name), version="1", folder=folder, fault=_printable(str(error)))]


def _read_settings(folder: Path) -> tuple[ModelSettings, ImportedConfig | None]:
    """Return the settings in `folder`. A configuration of another server supplies those that ours does not name."""
    path = folder / SETTINGS_FILE
    settings = _own_settings(folder)
    if settings.runtime is not None or settings.implementation is not None:
        return settings, None
    imported = next((config for item in registry().formats if (config := item.read(folder))), None)
    if imported is None:
        return settings, None
    declared = read_json_file(path, dict[str, object]) if path.is_file() else {}
    changes = {name: value for name, value in imported.settings.items() if name not in declared}
    return msgspec.structs.replace(settings, **changes), msgspec.structs.replace(imported, settings=changes)


def _own_settings(folder: Path) -> ModelSettings:
    for item in registry().formats:
        item.check(folder)
    return read_settings(folder)


def _is_model(folder: Path) -> bool:
    config_files = (SETTINGS_FILE, *(name for item in registry().formats for name in item.files))
    if any((folder / name).is_file() for name in config_files) and not _versions(folder):
        return True
    source = ModelSource(name=folder.name, version="1", folder=folder)
    return any(runtime.recognises(source) for runtime in registry().runtimes)


def _versions(folder: Path) -> list[Path]:
    candidates = [path for path in sorted(folder.iterdir()) if path.is_dir() and _VERSION.fullmatch(path.name)]
    return [candidate for candidate in candidates if _is_model(candidate)]


def _served_versions(path: Path, versions: Sequence[Path], settings: ModelSettings) -> Sequence[Path]:
    """Return the version folders that the model's settings select."""
    match settings.versions:
        case "all":
            return versions
        case "latest":
            return [max(versions, key=lambda folder: version_sort_key(_version_name(folder)))]
        case selected:
            missing = set(selected) - {_version_name(folder) for folder in versions}
            if missing:
                raise ModelError(f"{path}: versions: There is no version {', '.join(sorted(missing))}")
            return [folder for folder in versions if _version_name(folder) in selected]


def _name(folder: Path) -> str:
    """Return the name of a folder, of a link rather than of its target."""
    return Path(os.path.abspath(folder)).name  # noqa: PTH100  `Path.absolute` keeps ".."


def _version_name(folder: Path) -> str:
    return folder.name.removeprefix("v")


def _source(
    folder: Path, settings: ModelSettings, name: str, version: str, file: Path | None = None, root: Path | None = None
) -> ModelSource:
    if file is None and settings.uri is not None:
        file = _file_below(folder, settings.uri)
    source = ModelSource(
        name=settings.name or name,
        version=settings.version or version,
        folder=folder,
        file=file,
        settings=settings,
        root=root,
    )
    for field, value in (("name", source.name), ("version", source.version), ("chariot_id", settings.chariot_id)):
        if value is not None and not _is_safe_name(value):
            raise ModelError(f"{folder}: {field}: {_EXPECTED_NAME}, got {value!r}")
    return source


def _file_below(folder: Path, uri: str) -> Path:
    """Return the file that the settings name. Links are checked later, when the model is loaded."""
    relative = PurePosixPath(uri)
    if not uri.isprintable() or relative.is_absolute() or ".." in relative.parts or not relative.parts:
        raise ModelError(f"{folder}: uri: Expected a file below the folder, got {uri!r}")
    return folder / relative


def _is_safe_name(name: str) -> bool:
    """Return whether a name is safe as part of a path, a URL and a log line."""
    return (
        name.isprintable()
        and len(name) <= _MAX_NAME_LENGTH
        and name not in ("", ".", "..")
        and not {"/", "\\"} & {*name}
    )


def _printable(text: str) -> str:
    return "".join(character if character.isprintable() else "\N{REPLACEMENT CHARACTER}" for character in text)
