"""Open a store for reading, or a JSONL or Parquet export as a temporary store."""

import shutil
import tempfile
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import msgspec

from app.engine.error_text import missing_extra
from app.recording.inference import RecordedInference
from app.recording.query.reader import RecordingReader
from app.recording.stores.dsn import parse_dsn
from app.recording.stores.rows import to_rows
from app.recording.stores.sqlite_store import SqliteStore
from app.settings.server import SettingsError

_BATCH_SIZE = 1000


def open_recordings(source: str, images: Path | None = None) -> RecordingReader:
    """Open a store, or a file that ``charioteer inferences --to`` wrote as JSONL or Parquet.

    Args:
        source: the address of a store, or a file that ends in ``.jsonl``, ``.ndjson`` or ``.parquet``.
        images: the folder of stored images, if there is one.

    Raises:
        SettingsError: when the address is invalid, or the file is not such an export.
        InferenceError: when the store cannot be read.
    """
    file = Path(source)
    read = _READERS.get(file.suffix.lower())
    if read is None or not file.is_file():
        return RecordingReader(parse_dsn(source), images)
    inferences = read(file)
    folder = tempfile.mkdtemp(prefix="charioteer-")
    store = SqliteStore(Path(folder) / "recordings.db")
    store.open()
    # An export begins with the newest inference, a store with the oldest.
    for end in range(len(inferences), 0, -_BATCH_SIZE):
        store.write([to_rows(inference) for inference in reversed(inferences[max(0, end - _BATCH_SIZE) : end])])
    store.close()
    reader = RecordingReader(parse_dsn(f"{folder}/recordings.db"), images)
    weakref.finalize(reader, shutil.rmtree, folder, ignore_errors=True)
    return reader


def _read_lines(file: Path) -> Sequence[RecordedInference]:
    try:
        with file.open("rb") as lines:
            return [msgspec.json.decode(line, type=RecordedInference) for line in lines if line.strip()]
    except msgspec.DecodeError as error:
        raise SettingsError(f"{file}: Expected one recorded inference on each line: {error}") from None


def _read_parquet(file: Path) -> Sequence[RecordedInference]:
    try:
        from app.recording.export.parquet import read_parquet
    except ImportError as error:
        raise SettingsError(missing_extra("Parquet", "parquet", error)) from None
    return read_parquet(file)


def _reject_csv(file: Path) -> NoReturn:
    raise SettingsError(f"{file}: CSV is for spreadsheets and does not hold everything; export .jsonl or .parquet")


_READERS = {".jsonl": _read_lines, ".ndjson": _read_lines, ".parquet": _read_parquet, ".csv": _reject_csv}
