"""Read class names from the label files of common tools."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import msgspec
import yaml

from app.core.plugins import registry
from app.core.runtimes.folder import resolve_confined
from app.core.settings.model import ModelError, ModelSource, read_bounded

LABEL_FILES = ("labels.txt", "classes.txt", "labels.json", "id2label.json", "data.yaml", "coco.yaml")
"""Names of label files that are found beside a model, besides ``*.names`` and those that the configuration
of another server names."""

BACKGROUNDS = ("background", "__background__")
"""Names of the class for no object, in lower case."""

_MAX_BYTES = 4 * 1024 * 1024
_NUMBERED = re.compile(r"(\d+)\s*[:,]?\s+(.+)")
"""A line with the number of the class, as TFLite's tools write it."""


def declared_labels(source: ModelSource) -> tuple[str, ...] | None:
    """Return the labels in the settings, which are names or the name of a label file; None without any.

    Raise ModelError if the file cannot be read.
    """
    labels = source.settings.labels
    if not isinstance(labels, str):
        return labels
    # The settings of a model with versions lie above the folder of the version.
    folders = (source.folder, source.root or source.folder)
    path = next((folder / labels for folder in folders if (folder / labels).is_file()), source.folder / labels)
    return read_label_file(path, source)


def find_label_file(source: ModelSource, folder: Path) -> Path | None:
    """Return the label file of a model whose graph is in `folder`; None if there is none, or several ``*.names``."""
    folders = dict.fromkeys((folder, source.folder, *([source.root] if source.root else ())))
    formats = registry().formats
    candidates = (
        *(own / name for own in folders for item in formats if (name := item.label_file(own))),
        *(directory / name for name in LABEL_FILES for directory in folders),
        *(files[0] for files in (sorted(directory.glob("*.names")) for directory in folders) if len(files) == 1),
    )
    return next((path for path in candidates if path.is_file()), None)


def read_label_file(path: Path, source: ModelSource) -> tuple[str, ...]:
    """Return the class names of a label file: one a line, ``names`` in YAML, or a list or ``id2label`` in JSON.

    Raise ModelError if it is outside the model's folder, or has no class names by number.
    """
    resolved = resolve_confined(path, source)
    try:
        text = read_bounded(resolved, _MAX_BYTES).decode("utf-8-sig")
        match path.suffix.lower():
            case ".yaml" | ".yml":
                names = _names(cast("object", yaml.safe_load(text)))
            case ".json":
                names = _names(msgspec.json.decode(text))
            case _:
                names = _lines(text)
    except (UnicodeDecodeError, msgspec.DecodeError, yaml.YAMLError, RecursionError) as error:
        raise ModelError(f"{path}: the label file cannot be read: {error}") from None
    if not names:
        raise ModelError(f"{path}: expected a class name for each of the numbers 0, 1, ... in the label file")
    return names


def read_name(value: object) -> str | None:
    """Return the name of a class: a text or number, or the last of several names, as ImageNet's readable one.

    Return None for anything else.
    """
    if isinstance(value, (list, tuple)) and value:
        value = cast("Sequence[object]", value)[-1]
    return str(value) if isinstance(value, (str, int, float)) else None


def format_labels(names: Sequence[str]) -> str:
    """Return the number of labels, and the first five."""
    return f"{len(names)}: {', '.join(names[:5])}{', ...' if len(names) > 5 else ''}"


def _lines(text: str) -> tuple[str, ...]:
    lines = [line.strip() for line in text.rstrip().splitlines()]
    numbered = [_NUMBERED.fullmatch(line) for line in lines]
    if all(match is not None and int(match[1]) == number for number, match in enumerate(numbered)):
        return tuple(match[2] for match in numbered if match)
    return tuple(lines)


def _names(value: object) -> tuple[str, ...]:
    """Return the names in a list, a mapping by number, a mapping to numbers, or under a usual key; () otherwise."""
    if isinstance(value, list):
        names = [read_name(name) for name in cast("list[object]", value)]
        return tuple(name for name in names if name is not None) if None not in names else ()
    if not isinstance(value, dict):
        return ()
    entries = cast("dict[Any, Any]", value)
    for key in ("names", "id2label", "labels", "classes"):
        if isinstance(entries.get(key), (list, dict)):
            return _names(entries[key])
    if all(isinstance(number, int) for number in entries.values()):
        entries = {number: name for name, number in entries.items()}
    by_number = {str(number): read_name(name) for number, name in entries.items()}
    names_in_order = [by_number.get(str(number)) for number in range(len(by_number))]
    return tuple(name for name in names_in_order if name) if all(names_in_order) else ()
