"""Write truths into a store of recordings, and read them."""

import time
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec
from sqlalchemy import Connection, func, insert, select, update

from app.plugins.feedback.truths.matching import Label, find_inferences
from app.plugins.feedback.truths.right_answer import RightAnswer, kind_of, make_truth, records_by_kind
from app.plugins.recording.inference import RecordedInference, Truth
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.row_converter import Redaction
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.rows import truth_row
from app.plugins.recording.stores.store import ResultT, StoreDsn, StoreError
from app.plugins.recording.stores.tables import inferences, truths
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value

_BATCH = 500
_CHANGING = ("revision", "time", "author")
"""Columns in which a truth that is sent again may differ."""


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one label.

    Attributes:
        result: matched and stored; ambiguous, several inferences fit; unknown, none fits; invalid, it cannot be used.
        ids: the inferences that got the truth; a few of those that fit if it is ambiguous.
        error: why it is invalid.
    """

    result: Literal["matched", "ambiguous", "unknown", "invalid"]
    ids: Sequence[str] = ()
    error: str = ""


class TruthStore:
    """The truths of one store of recordings. One thread calls all methods.

    Methods raise `InferenceError` if the store cannot be read or written. Raise SettingsError when the driver of the
    store is not installed.

    Args:
        dsn: the address of the store. It is opened and migrated at the first use.
        redaction: redacts records of truths as those of answers.
        seconds: timeout of one query; None for no timeout.
    """

    def __init__(self, dsn: StoreDsn, redaction: Redaction | None = None, seconds: float | None = None) -> None:
        self._dsn = dsn
        self._seconds = seconds
        self._redaction = redaction or Redaction(())
        self._store = store_at(dsn)
        self._opened_reader: RecordingReader | None = None

    def get(self, inference_id: str) -> Truth:
        """Return the current truth of an inference.

        Raise MODEL_NOT_FOUND if there is no such inference, or none with a truth.
        """
        truth = self._inference(inference_id).truth
        if truth is None:
            raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"The inference {quote_value(inference_id)} has no truth")
        return truth

    def put(self, inference_id: str, answer: RightAnswer, author: str) -> Truth:
        """Store the truth of an inference, and return it. The same truth again changes nothing.

        Raise InferenceError as `get`; INVALID_REQUEST if the answer does not fit the inference.
        """
        records = records_by_kind(answer)
        inference = self._inference(inference_id)
        kind = kind_of(inference.task_type)
        if inference.records is None:
            raise invalid(f"Expected an inference with an answer, got {inference.error or 'an error'}", "id")
        if records and kind not in records:
            got = " or ".join(records) if answer.records else "none"
            raise invalid(f"Expected records of {inference.task_type}, got {got}", "records")
        truth = make_truth(inference, answer, records.get(kind), author, _now())
        (stored,) = self._write([(inference.id, truth)])
        return stored if stored is not None else self.get(inference_id)

    def withdraw(self, inference_id: str) -> None:
        """Withdraw the truth of an inference; its revisions stay.

        Raise MODEL_NOT_FOUND if there is no such inference.
        """
        self._write([(self._inference(inference_id).id, None)])

    def add(self, labels: Sequence[Label], author: str = "", *, spread: bool = False) -> Sequence[Outcome]:
        """Store the truths of the inferences that `labels` belong to, and return an outcome for each.

        With `spread`, a label of an image belongs to all its inferences with answers of this kind.
        """
        outcomes: list[Outcome] = []
        for start in range(0, len(labels), _BATCH):
            outcomes += self._add(labels[start : start + _BATCH], author, spread)
        return outcomes

    def run(self, query: Callable[[Connection], ResultT]) -> ResultT:
        """Return the result of a read-only query."""
        return self._reader().run(query)

    def close(self) -> None:
        """Close the store."""
        self._store.close()

    def _add(self, labels: Sequence[Label], author: str, spread: bool) -> Sequence[Outcome]:
        outcomes: list[Outcome] = []
        writes: list[tuple[str, Truth | None]] = []
        now = _now()
        matches = find_inferences(self._reader(), labels)
        if spread:
            # The records of one inference, as in an export, are right for all inferences of its image.
            by_digest = [
                msgspec.structs.replace(label, id=None, digest=found[0].image.digest)
                if label.records and not label.request_id and len(found) == 1 and found[0].image
                else label
                for label, found in zip(labels, matches, strict=True)
            ]
            matches = find_inferences(self._reader(), by_digest)
        for label, found in zip(labels, matches, strict=True):
            ids = [inference.id for inference in found]
            of_one_image = len({inference.image.digest if inference.image else None for inference in found}) == 1
            if not found:
                outcomes.append(Outcome(result="unknown"))
            elif len(found) > 1 and not (spread and of_one_image and label.request_id is None):
                outcomes.append(Outcome(result="ambiguous", ids=ids[:10]))
            else:
                try:
                    made = [
                        make_truth(item, label.answer, label.records.get(kind_of(item.task_type)), author, now)
                        for item in found
                    ]
                except InferenceError as error:
                    outcomes.append(Outcome(result="invalid", error=str(error)))
                    continue
                writes += zip(ids, made, strict=True)
                outcomes.append(Outcome(result="matched", ids=ids))
        self._write(writes)
        return outcomes

    def _inference(self, inference_id: str) -> RecordedInference:
        inference = self._reader().get(inference_id)
        if inference is None:
            raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"There is no inference {quote_value(inference_id)}")
        return inference

    def _reader(self) -> RecordingReader:
        if self._opened_reader is None:
            # Rejects a missing file, which the store would create.
            reader = RecordingReader(self._dsn, seconds=self._seconds)
            try:
                self._store.open()
            except StoreError as error:
                raise _unavailable(error) from None
            self._opened_reader = reader
        return self._opened_reader

    def _write(self, writes: Sequence[tuple[str, Truth | None]]) -> Sequence[Truth | None]:
        """Store truths by the id of their inference in one durable transaction; None withdraws the current one.

        Returns the stored truths; None for those that are stored already or whose inference was deleted meanwhile.
        """
        if not writes:
            return []
        redacted = [
            (name, truth and msgspec.structs.replace(truth, records=self._redaction.value(truth.records)))
            for name, truth in writes
        ]
        # One order for all writers prevents deadlocks.
        order = sorted(range(len(writes)), key=lambda index: writes[index][0])

        def work(connection: Connection) -> Sequence[Truth | None]:
            stored = {index: _write_one(connection, *redacted[index]) for index in order}
            return [stored[index] for index in range(len(writes))]

        try:
            return self._store.transaction(work)
        except StoreError as error:
            raise _unavailable(error) from None


def _write_one(connection: Connection, name: str, truth: Truth | None) -> Truth | None:
    # The lock makes concurrent writers of one inference number their revisions one after the other.
    locked = select(inferences.c.number).where(inferences.c.id == name).with_for_update()
    number = connection.execute(locked).scalar()
    if number is None:
        return None
    of_inference = truths.c.number == number
    is_current = of_inference & truths.c.current
    withdraw = update(truths).where(is_current).values(current=False)
    if truth is None:
        connection.execute(withdraw)
        return None
    row = connection.execute(select(truths).where(is_current)).mappings().first()
    last = connection.execute(select(func.max(truths.c.revision)).where(of_inference)).scalar() or 0
    truth = msgspec.structs.replace(truth, revision=last + 1)
    columns = truth_row(truth)
    if row is not None and all(row[key] == value for key, value in columns.items() if key not in _CHANGING):
        return None
    connection.execute(withdraw)
    connection.execute(insert(truths).values(number=number, **columns))
    return truth


def _unavailable(error: StoreError) -> InferenceError:
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The truth could not be stored: {error}", retry_after=1)


def _now() -> int:
    return time.time_ns() // 1000
