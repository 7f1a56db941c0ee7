"""What the formats share: pictures in folders, their sizes, numbers, lines and JSON, each fault with its place."""

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
_FARTHEST = 1e6
"""Pixels: no image reaches so far, and areas of greater coordinates would overflow."""
_BYTE = re.compile(r"\(byte (\d+)\)$")


def pictures_in(folder: Path) -> list[Path]:
    """The image files under `folder`, by name, those in folders that begin with a dot left out."""
    return sorted(
        each
        for each in folder.rglob("*")
        if each.suffix.lower() in _ENDINGS
        and each.is_file()
        and not any(part.startswith(".") for part in each.relative_to(folder).parts)
    )


def size_of(picture: Path, faults: Faults) -> tuple[int, int]:
    """Width and height in pixels of the upright image; (0, 0) and a fault where they cannot be read."""
    try:
        str(picture).encode()
        if picture.exists() and not picture.is_file():
            faults.add(str(picture), "is no file")
            return 0, 0
        with picture.open("rb") as file:
            start = file.read(_HEADER_BYTES)
            try:
                width, height = image_size(start)
            except InferenceError:
                width, height = image_size(start + file.read())
        return (height, width) if _lies_on_its_side(picture) else (width, height)
    except FileNotFoundError:
        faults.add(str(picture), "there is no such file")
    except OSError as error:
        faults.add(str(picture), f"cannot be read: {error.strerror}")
    except InferenceError as error:
        faults.add(str(picture), error.message)
    except ValueError:
        # A NUL, or bytes that are no UTF-8, which no report and no answer could name.
        shown = str(picture).replace("\0", "\\0").encode("ascii", "backslashreplace").decode()
        faults.add(shown, "Expected a name in UTF-8, without NUL")
    return 0, 0


def lines_of(path: Path) -> Iterator[tuple[str, str]]:
    """The lines of a text file that are not blank, each behind its place, ``file:line``.

    Raises:
        EvaluationError: when it cannot be read as UTF-8.
    """
    # Not `splitlines`: a text in JSON may have other separators of lines in it.
    for number, line in enumerate(_text(path).split("\n"), 1):
        if line.strip():
            yield f"{path}:{number}", line.strip()


def json_of(path: Path) -> object:
    """The JSON in a file.

    Raises:
        EvaluationError: naming the line where it ends to be JSON.
    """
    text = _text(path)
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        byte = _BYTE.search(str(error))
        line = text.encode()[: int(byte[1])].count(b"\n") + 1 if byte else text.count("\n") + 1
        raise EvaluationError(f"{path}:{line}: Expected JSON: {error}") from None


def json_lines(path: Path, faults: Faults) -> Iterator[tuple[str, Mapping[str, object]]]:
    """The objects in a file of JSON lines, each behind its place; what is none is a fault."""
    for place, line in lines_of(path):
        try:
            yield place, msgspec.json.decode(line, type=dict[str, object])
        except (msgspec.DecodeError, RecursionError) as error:
            faults.add(place, f"Expected a JSON object: {error}")


def listed(value: object) -> list[object] | None:
    """What was read, if it is a list."""
    return cast("list[object]", value) if isinstance(value, list) else None


def numbers(words: Sequence[object], place: str, faults: Faults) -> list[float] | None:
    """Finite numbers that a coordinate may be; None and a fault where one of them is none."""
    read: list[float] = []
    for word in words:
        try:
            value = float(word) if isinstance(word, str | int | float) and not isinstance(word, bool) else math.nan
        except (ValueError, OverflowError):
            value = math.nan
        if not math.isfinite(value):
            faults.add(place, f"Expected a finite number, got {brief(word)}")
            return None
        if abs(value) > _FARTHEST:
            faults.add(place, f"Expected a number within {_FARTHEST:.0f} of 0, got {brief(word)}")
            return None
        read.append(value)
    return read


def area_of(points: Sequence[tuple[float, float]]) -> float:
    """The area that a ring encloses, in the square of its unit, by the shoelace formula."""
    shifted = [*points[1:], *points[:1]]
    return abs(sum(x * v - u * y for (x, y), (u, v) in zip(points, shifted, strict=True))) / 2


def scalars(values: Mapping[str, object], without: frozenset[str]) -> dict[str, str]:
    """The entries that results can be sliced by: texts, numbers, yes and no."""
    return {
        key: value if isinstance(value, str) else msgspec.json.encode(value).decode()
        for key, value in values.items()
        if key not in without and isinstance(value, str | int | float | bool)
    }


def sidecar(folder: Path, faults: Faults) -> Mapping[str, Mapping[str, str]]:
    """The rows of ``metadata.csv`` or ``metadata.jsonl`` in `folder`, by the name of the image.

    The image is the column ``file_name`` (as Hugging Face's image folders have it), ``image``, ``file`` or ``name``.
    """
    found: dict[str, Mapping[str, str]] = {}
    for path in (folder / each for each in _SIDECARS):
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


def names_of(pictures: Iterable[Path]) -> Counter[str]:
    """How often each name occurs among the files, their folders left away."""
    return Counter(each.name for each in pictures)


def known_of(
    metadata: Mapping[str, Mapping[str, str]], name: str, picture: Path, names: Counter[str]
) -> Mapping[str, str]:
    """The row of a picture in a `sidecar`, by its `name` in the dataset, else by its file's, if it alone has that."""
    return metadata.get(name) or (metadata.get(picture.name, {}) if names[picture.name] == 1 else {})


def _lies_on_its_side(picture: Path) -> bool:
    """Whether EXIF turns the image by a quarter."""
    with contextlib.suppress(Exception), warnings.catch_warnings():
        # Only the header is read: Pillow's warning about large pictures is for who decodes them.
        warnings.simplefilter("ignore", PIL.Image.DecompressionBombWarning)
        with PIL.Image.open(picture) as image:
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
