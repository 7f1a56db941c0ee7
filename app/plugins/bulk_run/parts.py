"""The results of a run: a folder of Parquet files, each written in one step, so that a killed run can go on."""

import fcntl
import importlib
import shutil
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.clients.protocol import InferenceClientError
from app.core.settings.files import replacing_file
from app.core.settings.server import SettingsError
from app.plugins.recording.export.parquet import to_arrow
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.sources import SourceImage

# pyarrow has no type annotations.
_arrow: Any = importlib.import_module("pyarrow")
_parquet: Any = importlib.import_module("pyarrow.parquet")

_HEADER = "_run.json"
"""Readers of Parquet folders skip names that start with an underscore."""
_GROUP_ROWS = 64
_GROUP_SECONDS = 1.0
_MAX_BYTES = 64 << 20
_MAX_SECONDS = 60.0
"""A part ends at one of these limits at the latest: they bound its memory, and the work that a killed run repeats."""


class ResultParts:
    """The parts of a run; `open_parts` returns them. They have `count` images, and `errors` of these have no answer."""

    def __init__(self, folder: Path, file: Path | None, max_rows: int) -> None:
        self._folder, self._file, self._max_rows = folder, file, max_rows
        self._finished = sorted(folder.glob("part-*.parquet"))
        self._next = int(self._finished[-1].stem.removeprefix("part-")) + 1 if self._finished else 0
        finished = [_parquet.read_table(part, columns=["id", "error"]) for part in self._finished]
        ids = (_key(name) for table in finished for name in table.column("id").to_pylist())
        self._done: NDArray[np.uint64] = np.sort(np.fromiter(ids, np.uint64))
        self.count = len(self._done)
        self.errors = sum(map(_errors, finished))
        self._part: list[Any] = []
        self._part_started = time.monotonic()

    def has(self, image: SourceImage) -> bool:
        """Return whether a finished part has the image."""
        key = _key(image.digest)
        index = int(np.searchsorted(self._done, key))
        return index < len(self._done) and bool(self._done[index] == key)

    def write(self, batches: Iterable[Any], finished: Callable[[int], None]) -> None:
        """Write record batches as parts. Report the number of images so far after each batch.

        After an exception of `batches`, such as Ctrl-C, the part that was begun is written too.
        """
        try:
            for batch in batches:
                for start in range(0, batch.num_rows, self._max_rows):
                    piece = batch.slice(start, self._max_rows)
                    if self._rows() + piece.num_rows > self._max_rows:
                        self._end_part()
                    self._part.append(piece)
                self.count += batch.num_rows
                self.errors += _errors(batch)
                full = self._rows() == self._max_rows or sum(piece.nbytes for piece in self._part) >= _MAX_BYTES
                if full or time.monotonic() - self._part_started >= _MAX_SECONDS:
                    self._end_part()
                finished(self.count)
        finally:
            self._end_part()

    def complete(self) -> None:
        """Join the parts into the file, if `to` is one."""
        if self._file is None:
            return
        with replacing_file(self._file) as file:
            schema = _parquet.read_schema(self._finished[0])
            with _parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                for part in self._finished:
                    writer.write_table(_parquet.read_table(part))
        shutil.rmtree(self._folder)

    def _rows(self) -> int:
        return sum(piece.num_rows for piece in self._part)

    def _end_part(self) -> None:
        """Write the part, if it has rows, and begin the next one."""
        if self._part:
            path = self._folder / f"part-{self._next:06}.parquet"
            with replacing_file(path) as file:
                _parquet.write_table(_arrow.Table.from_batches(self._part), file, compression="zstd")
            self._finished.append(path)
            self._next += 1
        self._part, self._part_started = [], time.monotonic()


@contextmanager
def open_parts(to: Path, header: Mapping[str, object], max_rows: int, *, fresh: bool) -> Generator[ResultParts]:
    """Open the parts of an earlier run, or create their folder. No other run can open them meanwhile.

    `to` is a folder, or a file that ends in ``.parquet``, whose parts lie beside it until the end of the run. `header`
    is everything that the results depend on. A part has `max_rows` images. `fresh` removes earlier results. Raise
    SettingsError when `to` holds the results of another run, or other files.
    """
    file = to if to.suffix == ".parquet" and not to.is_dir() else None
    folder = to.with_name(f"{to.name}.parts") if file else to
    if file and file.exists() and not fresh:
        raise SettingsError(f"--to: {to} is complete; --fresh replaces it")
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir()) and not (folder / _HEADER).is_file()):
        raise SettingsError(f"--to: Expected a new folder, or the results of an earlier run, got {folder}")
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / _HEADER).open("a+b") as locked:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise SettingsError(f"--to: another run writes to {folder} now") from None
        if fresh:
            for earlier in filter(None, (*folder.glob("part-*.parquet"), file)):
                earlier.unlink(missing_ok=True)
        locked.seek(0)
        parts, encoded = ResultParts(folder, file, max_rows), msgspec.json.encode(header)
        if not parts.count:
            # A run that ended without a part, such as by a wrong parameter, does not bind the next one.
            locked.truncate()
            locked.write(encoded)
            locked.flush()
        elif differences := _differences(locked.read(), encoded):
            raise SettingsError(
                f"--to: {folder} has the results of a run that differs in: {', '.join(differences)}; "
                "choose another folder, or remove them with --fresh"
            )
        for unfinished in folder.glob(".charioteer-*.part"):
            unfinished.unlink()
        yield parts


def to_batches(results: Iterable[Sequence[RecordedInference]]) -> Iterator[Any]:
    """Yield rows as record batches, of many rows because each batch costs as much as many rows."""
    group: list[RecordedInference] = []
    started = time.monotonic()
    try:
        for rows in results:
            group += rows
            if len(group) >= _GROUP_ROWS or time.monotonic() - started >= _GROUP_SECONDS:
                yield to_arrow(group)
                group, started = [], time.monotonic()
    except InferenceClientError:
        # Keep the answers from before the server stopped answering.
        if group:
            yield to_arrow(group)
        raise
    if group:
        yield to_arrow(group)


def _errors(rows: Any) -> int:
    """Return the number of rows of a table or a batch that have an error."""
    return rows.num_rows - rows.column("error").null_count


def _key(digest: str) -> np.uint64:
    """Return 64 bits of a digest: of a billion images, two agree with a probability of 3 %."""
    return np.uint64(int(digest[:16], 16))


def _differences(earlier: bytes, now: bytes) -> Sequence[str]:
    """Return the names of the values in which two headers differ."""
    values: list[dict[str, object]] = [msgspec.json.decode(header, type=dict[str, Any]) for header in (earlier, now)]
    names = dict.fromkeys([*values[0], *values[1]])
    return [name for name in names if values[0].get(name) != values[1].get(name)]
