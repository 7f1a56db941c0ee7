"""Request an answer for every item, several at once, and write each as a JSON line, so that a run can resume."""

import hashlib
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from io import FileIO
from pathlib import Path
from threading import Lock

import msgspec

from app.clients.protocol import InferenceClientError, Records
from app.clients.threads import map_in_threads
from app.plugins.evaluation.dataset import EvaluationError, Item

InferenceClient = Callable[[Item, bytes], Records]
"""Returns the records for an item and the bytes of its image, or raises InferenceClientError without an answer.

Several threads call it.
"""

_GRACE_SECONDS = 2.0
"""Seconds to wait for requests in flight after an interruption."""
_MAX_FAILURES = 10
"""Number of failures before the first success that end the evaluation."""


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """The first line of a checkpoint: the version that wrote it, and the `fingerprint` and the model of the answers."""

    charioteer: str
    dataset: str
    source: Mapping[str, object]


class CheckpointEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An answer, in every other line of a checkpoint. `digest` is the SHA-256 of its image file, in hexadecimal."""

    id: str
    digest: str
    records: Records


class Checkpoint:
    """Append answers atomically to an unbuffered file with a header. Several threads may use it.

    `entries` are the answers in the file, by the id of the item.
    """

    def __init__(self, file: FileIO, entries: Mapping[str, CheckpointEntry]) -> None:
        self.entries, self._file, self._lock = entries, file, Lock()

    def add(self, entry: CheckpointEntry) -> None:
        """Append an answer. After an `OSError`, the file is unchanged."""
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


@contextmanager
def open_checkpoint(path: Path, header: Header, *, fresh: bool = False) -> Generator[Checkpoint]:
    """Open the checkpoint at `path`, or create it. Truncate an incomplete last line.

    Raise EvaluationError when the file belongs to another evaluation.
    """
    entries: Mapping[str, CheckpointEntry] = {}
    if path.is_file() and path.stat().st_size and not fresh:
        entries = _read(path, header)
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.encode(header) + b"\n")
    with path.open("ab", buffering=0) as file:
        yield Checkpoint(file, entries)


@dataclass(slots=True)
class CollectedAnswers:
    """The records, or the reason for a failure, by the id of the item."""

    records: dict[str, Records] = field(default_factory=dict[str, Records])
    failures: dict[str, str] = field(default_factory=dict[str, str])


def collect_answers(
    items: Sequence[Item],
    client: InferenceClient,
    checkpoint: Checkpoint,
    *,
    concurrency: int = 1,
    progress: Callable[[int], None] = lambda _: None,
) -> CollectedAnswers:
    """Request answers for items without an answer in the checkpoint, and for items whose image has changed.

    After an interruption, the checkpoint contains all answers so far, and those that arrive within two seconds. Raise
    EvaluationError when the first requests or all requests fail. Other errors of `client` propagate.
    """
    collected = CollectedAnswers()

    def answer(item: Item) -> Records | InferenceClientError:
        try:
            data = item.image.read_bytes()
        except OSError as error:
            return InferenceClientError(f"{item.image} cannot be read: {error.strerror}")
        digest, entry = hashlib.sha256(data).hexdigest(), checkpoint.entries.get(item.id)
        if entry is not None and entry.digest == digest:
            return entry.records
        try:
            records = client(item, data)
        except InferenceClientError as error:
            return error
        checkpoint.add(CheckpointEntry(id=item.id, digest=digest, records=records))
        return records

    threads = min(concurrency, len(items))
    with closing(map_in_threads(answer, items, threads, grace_seconds=_GRACE_SECONDS)) as outcomes:
        for item, outcome in zip(items, outcomes, strict=True):
            if not isinstance(outcome, InferenceClientError):
                collected.records[item.id] = outcome
            else:
                collected.failures[item.id] = str(outcome)
                if not collected.records and len(collected.failures) >= _MAX_FAILURES:
                    raise EvaluationError(f"The first {_MAX_FAILURES} images all failed; the last one: {outcome}")
            progress(len(collected.records) + len(collected.failures))
    if not collected.records and collected.failures:
        name, reason = next(iter(collected.failures.items()))
        raise EvaluationError(f"Not one of {len(items)} images was answered; {name}: {reason}")
    return collected


def _read(path: Path, header: Header) -> Mapping[str, CheckpointEntry]:
    content = path.read_bytes()
    complete = content[: content.rfind(b"\n") + 1]
    header_line, *lines = complete.splitlines() or [b""]
    try:
        existing = msgspec.json.decode(header_line, type=Header)
    except ValueError:
        reason = "Expected answers of an evaluation, got something else; --fresh replaces it"
        raise EvaluationError(f"{path}: {reason}") from None
    if existing.dataset != header.dataset:
        raise EvaluationError(
            f"{path} has answers about another dataset, or this one has other images by now; --fresh starts again"
        )
    source = msgspec.json.decode(msgspec.json.encode(header.source), type=dict[str, object])
    if changed := sorted(key for key in {*existing.source, *source} if existing.source.get(key) != source.get(key)):
        raise EvaluationError(f"{path} has answers that differ in: {', '.join(changed)}; --fresh starts again")
    entries: dict[str, CheckpointEntry] = {}
    for number, line in enumerate(lines, 2):
        try:
            answer = msgspec.json.decode(line, type=CheckpointEntry)
        except ValueError as error:
            raise EvaluationError(f"{path}:{number}: Expected an answer: {error}; --fresh starts again") from None
        entries[answer.id] = answer
    if len(complete) < len(content):
        with path.open("r+b") as file:
            file.truncate(len(complete))
    return entries
