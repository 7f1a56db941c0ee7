"""Export recorded inferences into one file, batch by batch."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal

from app.core.engine.error_text import needs_extra
from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError
from app.plugins.recording.inference import Batches, Exported, RecordedInference

Format = Literal["parquet", "coco", "jsonl", "csv", "yolo"]
"""The format of a file of inferences."""

_SUFFIXES: Mapping[str, Format] = {
    ".parquet": "parquet",
    ".json": "coco",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
}


def format_of(path: Path) -> Format:
    """Return the format for the ending of a file name; ``.json`` is COCO.

    Raises:
        SettingsError: for any other name.
    """
    file_format = _SUFFIXES.get(path.suffix.lower())
    if file_format is None:
        raise SettingsError(f"--to: Expected a file that ends in {', '.join(_SUFFIXES)}, or --format; got {path}")
    return file_format


def export(
    batches: Batches,
    path: Path,
    file_format: Format,
    on_progress: Callable[[int], None] = lambda _: None,
    images: Path | None = None,
) -> Exported:
    """Write inferences into a file. The complete file replaces an existing one atomically. YOLO needs a new folder.

    Args:
        batches: batches of inferences; only a few are in memory at once.
        path: the file, in an existing folder.
        file_format: the format of the file.
        on_progress: called after every batch with the number of inferences written so far.
        images: the folder of recorded images, for YOLO.

    Raises:
        SettingsError: when a library for the format is not installed, or the folder does not exist.
        OSError: when the file cannot be written.
    """
    if not path.parent.is_dir():
        raise SettingsError(f"--to: There is no folder {path.parent}")
    if file_format == "yolo":
        from app.plugins.recording.export.yolo import write_yolo

        if images is None or not images.is_dir():
            needed = "the folder of recorded images (--record-images)"
            raise SettingsError(f"--format yolo needs --images, {needed}, got {images or 'none'}")
        return write_yolo(_report_progress(batches, on_progress), path, images)
    write = _load_writer(file_format)
    if path.is_dir():
        raise SettingsError(f"--to: Expected a file, got the folder {path}")
    with replacing_file(path) as file:
        return write(_report_progress(batches, on_progress), file)


def _load_writer(file_format: Format) -> Callable[[Batches, BinaryIO], Exported]:
    match file_format:
        case "coco":
            from app.plugins.recording.export.coco import write_coco as write
        case "jsonl":
            from app.plugins.recording.export.line_formats import write_jsonl as write
        case "csv":
            from app.plugins.recording.export.line_formats import write_csv as write
        case _:
            with needs_extra("Parquet", "parquet", SettingsError):
                from app.plugins.recording.export.parquet import write_parquet as write
    return write


def _report_progress(batches: Batches, on_progress: Callable[[int], None]) -> Iterator[Sequence[RecordedInference]]:
    count = 0
    for batch in batches:
        yield batch
        count += len(batch)
        on_progress(count)
