"""Helpers of all formats: read images, sizes, numbers, lines and JSON, with locations for errors."""

import contextlib
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import msgspec
from cyclopts import Parameter

from app.core.settings.environment import RARE
from app.plugins.evaluation.dataset import Box, EvaluationError, Item, LabelErrors, Ring
from tasks.inference.error import InferenceError, quote_value
from tasks.task import TaskType
from tasks.vision.header import JPEG_START, image_size

_NAMES = ("file_name", "image", "file", "name")
_HEADER_BYTES = 1 << 18
MAX_COORDINATE = 1e6
"""Maximum coordinate in pixels, beyond any image; areas of larger ones would overflow."""
DatasetFormat = Literal["image-folder", "coco", "yolo"]

_BYTE = re.compile(r"\(byte (\d+)\)$")


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class DatasetOptions:
    """How to read a dataset."""

    format: DatasetFormat | None = None
    """Format of the dataset; detected by default."""

    images: Annotated[Path | None, RARE] = None
    """Folder of the images, if they are not at the format's usual location."""

    split: Annotated[str | None, RARE] = None
    """Split of a YOLO dataset; the first of val, test and train by default."""

    task: Annotated[TaskType | None, Parameter(name_transform=str), RARE] = None
    """Task type to measure, such as OBJECT_DETECTION, if the labels fit several."""

    skip_bad: Annotated[bool, Parameter(negative="")] = False
    """Skip labels and images that cannot be used, and list them in the report."""

    needs_images: Annotated[bool, Parameter(parse=False)] = True
    """Whether a missing image is an error, although the labels have its size (COCO)."""


def read_image_size(path: Path, errors: LabelErrors) -> tuple[int, int]:
    """Return width and height of the upright image in pixels; record an error and return (0, 0) if unreadable."""
    location = str(path)
    try:
        location.encode()
        if path.exists() and not path.is_file():
            errors.add(location, "is no file")
            return 0, 0
        with path.open("rb") as file:
            start = file.read(_HEADER_BYTES)
            with contextlib.suppress(InferenceError):
                # Other formats may have their orientation at the end.
                if start.startswith(JPEG_START):
                    return image_size(start)
            return image_size(start + file.read(), allow_avif_jpeg2000=True)
    except FileNotFoundError:
        errors.add(location, "there is no such file")
    except OSError as error:
        errors.add(location, f"cannot be read: {error.strerror}")
    except InferenceError as error:
        errors.add(location, error.message)
    except ValueError:
        # The name contains NUL or invalid UTF-8, which a report cannot contain.
        printable = location.replace("\0", "\\0").encode("ascii", "backslashreplace").decode()
        errors.add(printable, "Expected a name in UTF-8, without NUL")
    return 0, 0


def read_item(name: str, path: Path, errors: LabelErrors, **fields: Any) -> Item | None:
    """Return the item of an image with its size and `fields`; record an error and return None if it is unreadable."""
    width, height = read_image_size(path, errors)
    return Item(id=name, image=path, width=width, height=height, **fields) if width else None


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the location, ``file:line``, and the text of each line that is not blank; reject files not in UTF-8."""
    # Do not use `splitlines`: a JSON text may contain other line separators.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line.strip()


def read_json(path: Path) -> object:
    """Read a JSON file. An `EvaluationError` names the line of a syntax error."""
    text = _text(path)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        byte = _BYTE.search(str(error))
        line = text.encode()[: int(byte[1])].count(b"\n") + 1 if byte else text.count("\n") + 1
        raise EvaluationError(f"{path}:{line}: Expected JSON: {error}") from None


def read_json_lines(path: Path, errors: LabelErrors) -> Iterator[tuple[str, Mapping[str, object]]]:
    """Yield the location and the object of each JSON line; other lines are errors."""
    for location, line in read_lines(path):
        try:
            yield location, msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            errors.add(location, f"Expected a JSON object: {error}")


def find_file(folder: Path, name: str) -> Path:
    """Return the path of a file that labels name. Those written on Windows may have backslashes between folders."""
    path = folder / name
    return path if "\\" not in name or is_file(path) else folder / with_slashes(name)


def with_slashes(name: str) -> str:
    """Return a path of Windows as paths are written elsewhere."""
    return name.replace("\\", "/")


def is_file(path: Path) -> bool:
    """Return whether there is such a file; False for a name that no file can have."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def whole_number(value: Any) -> Any:
    """Return a float without a fraction as an integer, because exporters write 1.0 for 1; other values unchanged."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def as_list(value: object) -> list[object] | None:
    """Return `value` if it is a list, otherwise None."""
    return cast("list[object]", value) if isinstance(value, list) else None


def parse_number(value: object) -> float:
    """Parse a coordinate in pixels, or another number. Raise `ValueError` if it is not finite, or too large."""
    number = math.nan
    if isinstance(value, str | int | float) and not isinstance(value, bool):
        with contextlib.suppress(ValueError, OverflowError):
            number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"Expected a finite number, got {quote_value(value)}")
    if abs(number) > MAX_COORDINATE:
        raise ValueError(f"Expected a number within {MAX_COORDINATE:.0f} of 0, got {quote_value(value)}")
    return number


def ring_area(points: Sequence[tuple[float, float]]) -> float:
    """Return the area of a ring by the shoelace formula, in squared units."""
    shifted = [*points[1:], *points[:1]]
    return abs(sum(x * v - u * y for (x, y), (u, v) in zip(points, shifted, strict=True))) / 2


def bounding_box(rings: Sequence[Ring]) -> Box:
    """Return left, top, right and bottom of all points."""
    xs, ys = zip(*(point for ring in rings for point in ring), strict=True)
    return min(xs), min(ys), max(xs), max(ys)


def rotated(box: Box, degrees: float, origin: tuple[float, float]) -> Ring:
    """Return the corners of a box, the left top one first, turned clockwise about a point."""
    left, top, right, bottom = box
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    corners = ((left, top), (right, top), (right, bottom), (left, bottom))
    offsets = [(x - origin[0], y - origin[1]) for x, y in corners]
    return tuple((origin[0] + x * cos - y * sin, origin[1] + x * sin + y * cos) for x, y in offsets)


def scalar_values(values: Mapping[str, object], excluded: frozenset[str]) -> dict[str, str]:
    """Return the entries to slice results by: texts, numbers and booleans."""
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in values.items()
        if key not in excluded and isinstance(value, str | int | float | bool)
    }


def read_sidecar(folder: Path, errors: LabelErrors) -> Mapping[str, Mapping[str, str]]:
    """Read ``metadata.csv`` or ``metadata.jsonl`` in `folder` into rows by image name, with slashes.

    The image is the column ``file_name`` (Hugging Face's name), ``image``, ``file`` or ``name``.
    """
    rows: dict[str, Mapping[str, str]] = {}
    for path in (folder / "metadata.csv", folder / "metadata.jsonl"):
        for location, row in _rows(path, errors) if path.is_file() else ():
            name = next((row[column] for column in _NAMES if isinstance(row.get(column), str)), None)
            if not isinstance(name, str):
                errors.add(location, f"Expected the image's name as one of {', '.join(_NAMES)}")
            elif with_slashes(name) in rows:
                errors.add(location, f"Expected each image once, got {quote_value(name)} again")
            else:
                rows[with_slashes(name)] = scalar_values(row, frozenset(_NAMES))
    return rows


def rows_of(files: Mapping[str, Path], folder: Path, errors: LabelErrors) -> Mapping[str, Mapping[str, str]]:
    """Return rows of `read_sidecar` by the names of images in the dataset, or by unique file names."""
    rows, count = read_sidecar(folder, errors), Counter(file.name for file in files.values())
    return {
        name: rows.get(with_slashes(name)) or (rows.get(file.name, {}) if count[file.name] == 1 else {})
        for name, file in files.items()
    }


def _rows(path: Path, errors: LabelErrors) -> Iterator[tuple[str, Mapping[str, object]]]:
    if path.suffix == ".jsonl":
        yield from read_json_lines(path, errors)
        return
    reader = csv.DictReader(io.StringIO(_text(path)), strict=True)
    try:
        for row in reader:
            location = f"{path}:{reader.line_num}"
            if None in row:
                errors.add(location, "Expected as many values as there are columns, got more")
            else:
                # pandas writes the numbers of rows into a column without a name.
                yield location, {key: value for key, value in row.items() if key and value not in (None, "")}
    except csv.Error as error:
        errors.add(f"{path}:{reader.reader.line_num}", f"Expected CSV: {error}")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise EvaluationError(f"{path}: Expected text in UTF-8, got byte {error.start} of something else") from None
    except OSError as error:
        raise EvaluationError(f"{path}: cannot be read: {error.strerror}") from None
