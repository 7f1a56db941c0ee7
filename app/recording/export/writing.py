"""Exports: recorded inferences into one file, batch by batch."""

import os
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import BinaryIO

import msgspec

from app.recording.inference import RecordedInference
from app.settings.server import SettingsError

__all__ = ("Batches", "Exported", "Format", "export", "format_of")

Batches = Iterable[Sequence[RecordedInference]]


class Format(StrEnum):
    """What a file of inferences can be."""

    PARQUET = "parquet"
    COCO = "coco"
    JSONL = "jsonl"
    CSV = "csv"


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """What became of an export.

    Attributes:
        written: inferences in the file.
        left_out: inferences that the format has no place for.
    """

    written: int
    left_out: int = 0


_SUFFIXES = {
    ".parquet": Format.PARQUET,
    ".json": Format.COCO,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".csv": Format.CSV,
}


def format_of(path: Path) -> Format:
    """The format that a file's name stands for; a plain ``.json`` is COCO.

    Raises:
        SettingsError: for any other name.
    """
    found = _SUFFIXES.get(path.suffix.lower())
    if found is None:
        raise SettingsError(f"--to: Expected a file that ends in {', '.join(_SUFFIXES)}, or --format; got {path}")
    return found


def export(batches: Batches, path: Path, form: Format, told: Callable[[int], None] = lambda _: None) -> Exported:
    """Write inferences into a file, which appears when it is whole, in the place of one that was there.

    Args:
        batches: of inferences; never more than a few are in memory.
        path: of the file; its folder exists.
        form: of the file.
        told: how many inferences are written so far, after every batch.

    Raises:
        SettingsError: when the format needs what is not installed, or there is no such folder.
        OSError: when the file cannot be written.
    """
    write = _writer(form)
    if not path.parent.is_dir():
        raise SettingsError(f"--to: There is no folder {path.parent}")
    if path.is_dir():
        raise SettingsError(f"--to: Expected a file, got the folder {path}")
    with _whole(path) as file:
        return write(_counted(batches, told), file)


def _writer(form: Format) -> Callable[[Batches, BinaryIO], Exported]:
    match form:
        case Format.COCO:
            from app.recording.export.coco import write_coco as write
        case Format.JSONL:
            from app.recording.export.rows import write_jsonl as write
        case Format.CSV:
            from app.recording.export.rows import write_csv as write
        case Format.PARQUET:
            try:
                from app.recording.export.parquet import write_parquet as write
            except ImportError as error:
                raise SettingsError(
                    f"Parquet needs the extra parquet, pip install charioteer[parquet] ({error})"
                ) from None
    return write


def _counted(batches: Batches, told: Callable[[int], None]) -> Iterator[Sequence[RecordedInference]]:
    count = 0
    for batch in batches:
        yield batch
        count += len(batch)
        told(count)


@contextmanager
def _whole(path: Path) -> Generator[BinaryIO]:
    """A file beside `path` that takes its name once it is written, and is removed when it could not be."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name[:100]}.", suffix=".part", dir=path.parent)
    os.close(descriptor)
    unfinished = Path(name)
    try:
        with unfinished.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        unfinished.chmod(_permissions())
        unfinished.replace(path)
    except BaseException:
        unfinished.unlink(missing_ok=True)
        raise


def _permissions() -> int:
    """What a new file gets; `mkstemp` gives nobody else any rights."""
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
