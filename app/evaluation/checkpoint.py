"""Write each answer as a JSON line, so that an interrupted evaluation can resume."""

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import msgspec

from app.evaluation.dataset import EvaluationError

Records = Sequence[Mapping[str, object]]


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line, which identifies the evaluation.

    Attributes:
        charioteer: the version that wrote the file.
        dataset: `fingerprint` of the dataset.
        source: the model and the parameters.
    """

    charioteer: str
    dataset: str
    source: Mapping[str, object]


class CheckpointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, in every other line.

    Attributes:
        id: the id of the item.
        digest: SHA-256 of its image file, in hexadecimal.
        records: the records of the answer.
    """

    id: str
    digest: str
    records: Records


class Checkpoint:
    """Append answers atomically. Several threads may use it.

    Args:
        path: the file, which already has its header.
        entries: the answers in the file, by the id of the item.
    """

    def __init__(self, path: Path, entries: Mapping[str, CheckpointEntry]) -> None:
        self.entries = entries
        self._file = path.open("ab", buffering=0)
        self._lock = Lock()

    def add(self, entry: CheckpointEntry) -> None:
        """Append an answer.

        Raises:
            OSError: when the write fails; the file is then unchanged.
        """
        line = msgspec.json.encode(entry) + b"\n"
        with self._lock:
            size_before = os.fstat(self._file.fileno()).st_size
            try:
                written = 0
                while written < len(line):
                    written += self._file.write(line[written:])
            except BaseException:
                # Remove a partial line, for example on a full disk: it would corrupt the next line.
                self._file.truncate(size_before)
                raise

    def close(self) -> None:
        """Close the file."""
        self._file.close()


@contextmanager
def open_checkpoint(path: Path, header: Header, *, fresh: bool = False) -> Generator[Checkpoint]:
    """Open the checkpoint at `path`, or create it. Truncate an incomplete last line.

    Raises:
        EvaluationError: when the file belongs to another evaluation.
    """
    entries: Mapping[str, CheckpointEntry] = {}
    if path.is_file() and path.stat().st_size and not fresh:
        entries = _read(path, header)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(header) + b"\n")
    opened = Checkpoint(path, entries)
    try:
        yield opened
    finally:
        opened.close()


def _read(path: Path, header: Header) -> Mapping[str, CheckpointEntry]:
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    header_line, *lines = complete.splitlines() or [b""]
    _check(path, header_line, header)
    entries: dict[str, CheckpointEntry] = {}
    for number, line in enumerate(lines, 2):
        try:
            answer = msgspec.json.decode(line, type=CheckpointEntry)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise EvaluationError(f"{path}:{number}: Expected an answer: {error}; --fresh starts again") from None
        entries[answer.id] = answer
    if len(complete) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(complete))
    return entries


def _check(path: Path, line: bytes, header: Header) -> None:
    try:
        existing = msgspec.json.decode(line, type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise EvaluationError(
            f"{path}: Expected answers of an evaluation, got something else; --fresh replaces it"
        ) from None
    if existing.dataset != header.dataset:
        raise EvaluationError(
            f"{path} has answers about another dataset, or this one has other images by now; --fresh starts again"
        )
    source = msgspec.json.decode(msgspec.json.encode(header.source), type=dict[str, object])
    if changed := sorted(key for key in {*existing.source, *source} if existing.source.get(key) != source.get(key)):
        raise EvaluationError(f"{path} has answers with another {', '.join(changed)}; --fresh starts again")
