"""Export recorded inferences into one file, batch by batch: JSONL here, other formats by their modules."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Literal

import msgspec

from app.core.engine.error_text import needs_extra
from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError
from app.plugins.recording.inference import Batches, Exported

Format = Literal["parquet", "coco", "jsonl", "yolo"]
"""The format of a file of inferences."""

_SUFFIXES: Mapping[str, Format] = {
    ".parquet": "parquet",
    ".json": "coco",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
}


def format_of(path: Path) -> Format:
    """Return the format for the ending of a file name; ``.json`` is COCO. Raise SettingsError for any other name."""
    file_format = _SUFFIXES.get(path.suffix.lower())
    if file_format is None:
        raise SettingsError(f"--to: Expected a file that ends in {', '.join(_SUFFIXES)}, or --format; got {path}")
    return file_format


def export_inferences(batches: Batches, path: Path, file_format: Format, images: Path | None = None) -> Exported:
    """Write inferences into a file. The complete file replaces an existing one atomically. YOLO needs a new folder.

    Raise SettingsError when a library for the format is not installed, or the folder does not exist. Raise OSError when
    the file cannot be written.

    Args:
        batches: batches of inferences; only a few are in memory at once.
        path: the file, in an existing folder.
        file_format: the format of the file.
        images: the folder of recorded images, for YOLO.
    """
    if not path.parent.is_dir():
        raise SettingsError(f"--to: There is no folder {path.parent}")
    if file_format == "yolo":
        from app.plugins.recording.export.yolo import write_yolo

        if images is None or not images.is_dir():
            needed = "the folder of recorded images (--record-images)"
            raise SettingsError(f"--format yolo needs --images, {needed}, got {images or 'none'}")
        return write_yolo(batches, path, images)
    if path.is_dir():
        raise SettingsError(f"--to: Expected a file, got the folder {path}")
    write: Callable[[Batches, BinaryIO], Exported] = write_jsonl
    if file_format == "coco":
        from app.plugins.recording.export.coco import write_coco as write
    elif file_format == "parquet":
        with needs_extra("Parquet", "parquet", SettingsError):
            from app.plugins.recording.export.parquet import write_parquet as write
    with replacing_file(path) as file:
        return write(batches, file)


def write_jsonl(batches: Batches, file: BinaryIO) -> Exported:
    """Write one `RecordedInference` a line with all fields; `msgspec.json.decode` reads it back."""
    written = 0
    encoder = msgspec.json.Encoder()
    for batch in batches:
        file.write(encoder.encode_lines(batch))
        written += len(batch)
    return Exported(written=written)
