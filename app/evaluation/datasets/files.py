"""Shared helpers of the formats: image files, their sizes, numbers, lines and JSON, with places for faults."""

import contextlib
import csv
import io
import math
import re
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast

import msgspec
import PIL.Image

from app.evaluation.dataset import Faults
from app.evaluation.extras import EvaluationError
from tasks.exchange.error import InferenceError, brief
from tasks.vision.header import image_size

__all__ = (
    "area_of",
    "json_lines",
    "json_of",
    "known_of",
    "lines_of",
    "listed",
    "names_of",
    "numbers",
    "pictures_in",
    "scalars",
    "sidecar",
    "size_of",
)

_ENDINGS = frozenset({".avif", ".bmp", ".gif", ".jp2", ".jpeg", ".jpg", ".png", ".tif", ".tiff", ".webp"})
_NAMES = ("file_name", "image", "file", "name")
_SIDECARS = ("metadata.csv", "metadata.jsonl")
_HEADER_BYTES = 1 << 18
_ORIENTATION = 0x0112
_QUARTERS = frozenset({5, 6, 7, 8})
_MAX_COORDINATE = 1e6
"""Maximum coordinate in pixels, beyond any image; areas of larger ones would overflow."""
_BYTE = re.compile(r"\(byte (\d+)\)$")


def pictures_in(folder: Path) -> list[Path]:
    """Return the image files under `folder`, sorted by name, except in hidden folders."""
    return sorted(
        file
        for file in folder.rglob("*")
        if file.suffix.lower() in _ENDINGS
        and file.is_file()
        and not any(part.startswith(".") for part in file.relative_to(folder).parts)
    )


def size_of(path: Path, faults: Faults) -> tuple[int, int]:
    """Return width and height of the upright image in pixels; record a fault and return (0, 0) if unreadable."""
    try:
        str(path).encode()
        if path.exists() and not path.is_file():
            faults.add(str(path), "is no file")
            return 0, 0
        with path.open("rb") as file:
            start = file.read(_HEADER_BYTES)
            try:
                width, height = image_size(start)
            except InferenceError:
                width, height = image_size(start + file.read())
        return (height, width) if _is_rotated(path) else (width, height)
    except FileNotFoundError:
        faults.add(str(path), "there is no such file")
    except OSError as error:
        faults.add(str(path), f"cannot be read: {error.strerror}")
    except InferenceError as error:
        faults.add(str(path), error.message)
    except ValueError:
        # The name contains NUL or invalid UTF-8, which a report cannot contain.
        shown = str(path).replace("\0", "\\0").encode("ascii", "backslashreplace").decode()
        faults.add(shown, "Expected a name in UTF-8, without NUL")
    return 0, 0


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the place, ``file:line``, and the text of each line that is not blank.

    Raises:
        EvaluationError: when it cannot be read as UTF-8.
    """
    # Do not use `splitlines`: a JSON text may contain other line separators.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line.strip()


def json_of(path: Path) -> object:
    """Read a JSON file.

    Raises:
        EvaluationError: naming the line of the syntax error.
    """
    text = _text(path)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        byte = _BYTE.search(str(error))
        line = text.encode()[: int(byte[1])].count(b"\n") + 1 if byte else text.count("\n") + 1
        raise EvaluationError(f"{path}:{line}: Expected JSON: {error}") from None


def json_lines(path: Path, faults: Faults) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the place and the object of each JSON line; other lines are faults."""
    for place, line in lines_of(path):
        try:
            yield place, msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            faults.add(place, f"Expected a JSON object: {error}")


def listed(value: object) -> list[object] | None:
    """Return `value` if it is a list, otherwise None."""
    return cast("list[object]", value) if isinstance(value, list) else None


def numbers(words: Sequence[object], place: str, faults: Faults) -> list[float] | None:
    """Parse finite coordinates; record a fault and return None if one is invalid."""
    read: list[float] = []
    for word in words:
        try:
            value = float(word) if isinstance(word, str | int | float) and not isinstance(word, bool) else math.nan
        except (ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            faults.add(place, f"Expected a finite number, got {brief(word)}")
            return None
        if abs(value) > _MAX_COORDINATE:
            faults.add(place, f"Expected a number within {_MAX_COORDINATE:.0f} of 0, got {brief(word)}")
            return None
        read.append(value)
    return read


def area_of(points: Sequence[tuple[float, float]]) -> float:
    """Return the area of a ring by the shoelace formula, in squared units."""
    shifted = [*points[1:], *points[:1]]
    return abs(sum(x * v - u * y for (x, y), (u, v) in zip(points, shifted, strict=True))) / 2


def scalars(values: Mapping[str, object], without: frozenset[str]) -> dict[str, str]:
    """Return the entries to slice results by: texts, numbers and booleans."""
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in values.items()
        if key not in without and isinstance(value, str | int | float | bool)
    }


def sidecar(folder: Path, faults: Faults) -> Mapping[str, Mapping[str, str]]:
    """Read ``metadata.csv`` or ``metadata.jsonl`` in `folder` into rows by image name.

    The image is the column ``file_name`` (as Hugging Face's image folders have it), ``image``, ``file`` or ``name``.
    """
    found: dict[str, Mapping[str, str]] = {}
    for path in (folder / name for name in _SIDECARS):
        if not path.is_file():
            continue
        for place, row in _rows(path, faults):
            name = next((row[each] for each in _NAMES if isinstance(row.get(each), str)), None)
            if not isinstance(name, str):
                faults.add(place, f"Expected the image's name as one of {', '.join(_NAMES)}")
            elif name in found:
                faults.add(place, f"Expected each image once, got {brief(name)} again")
            else:
                found[name] = scalars(row, frozenset(_NAMES))
    return found


def names_of(files: Iterable[Path]) -> Counter[str]:
    """Count each file name, without folders."""
    return Counter(file.name for file in files)


def known_of(
    metadata: Mapping[str, Mapping[str, str]], name: str, file: Path, names: Counter[str]
) -> Mapping[str, str]:
    """Return an image's row in a `sidecar`, by its `name` in the dataset, or by a unique file name."""
    return metadata.get(name) or (metadata.get(file.name, {}) if names[file.name] == 1 else {})


def _is_rotated(path: Path) -> bool:
    """Return whether EXIF rotates the image by 90 degrees."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        # Only the header is read, so Pillow's warning about large images does not apply.
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
        with PIL.Image.open(path) as image:
            return image.getexif().get(_ORIENTATION) in _QUARTERS
    return False


def _rows(path: Path, faults: Faults) -> Iterator[tuple[str, Mapping[str, object]]]:
    if path.suffix == ".jsonl":
        yield from json_lines(path, faults)
        return
    reader = csv.DictReader(io.StringIO(_text(path)), restkey="", strict=True)
    try:
        for row in reader:
            place = f"{path}:{reader.line_num}"
            if "" in row:
                faults.add(place, "Expected as many values as there are columns, got more")
            else:
                yield place, {key: value for key, value in row.items() if value not in (None, "")}
    except csv.Error as error:
        faults.add(f"{path}:{reader.reader.line_num}", f"Expected CSV: {error}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvaluationError(f"{path}: Expected text in UTF-8, got byte {error.start} of something else") from None
    except OSError as error:
        raise EvaluationError(f"{path}: cannot be read: {error.strerror}") from None
