"""Truths of recorded inferences: check, store and read them."""

import time
from collections.abc import Collection, Mapping, Sequence
from typing import Annotated, Literal

import msgspec

from app.plugins.recording.api import TruthJudge
from app.plugins.recording.inference import Truth
from app.plugins.recording.query.reader import RecordingReader
from app.plugins.recording.row_converter import Redaction
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.store import StoreDsn, StoreError
from tasks.inference.error import ErrorKind, InferenceError, invalid, quote_value

_MAX_OBJECTS = 10_000


class RightAnswer(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a user knows of an inference: the right records, or only whether its answer was right.

    Attributes:
        verdict: whether the answer was right; not together with `records`.
        records: the right answer in the form of the inference's records. Scores are ignored.
        complete: whether `records` has every object of the image.
        source: what it comes from, such as the name of a tool.
        comment: a remark for people.
    """

    verdict: Literal["right", "wrong"] | None = None
    records: Annotated[list[dict[str, object]], msgspec.Meta(max_length=_MAX_OBJECTS)] | None = None
    complete: bool = True
    source: Annotated[str, msgspec.Meta(max_length=64)] = "api"
    comment: Annotated[str, msgspec.Meta(max_length=2000)] = ""


class TruthStore:
    """The truths of one store of recordings. One thread calls all methods.

    Methods raise `InferenceError` if the store cannot be read or written. Raise SettingsError when the driver of the
    store is not installed.

    Args:
        dsn: the address of the store. It is opened and migrated at the first use.
        redaction: redacts records of truths as of responses.
        seconds: timeout of one query; None for no timeout.
    """

    def __init__(self, dsn: StoreDsn, redaction: Redaction | None = None, seconds: float | None = None) -> None:
        self._dsn = dsn
        self._seconds = seconds
        self._redaction = redaction or Redaction(())
        self._store = store_at(dsn)
        self._opened_reader: RecordingReader | None = None

    @property
    def reader(self) -> RecordingReader:
        """The reader of the store, which is opened and migrated."""
        if self._opened_reader is None:
            # Rejects a missing file, which the store would create.
            reader = RecordingReader(self._dsn, seconds=self._seconds)
            try:
                self._store.open()
            except StoreError as error:
                raise _unavailable(error) from None
            self._opened_reader = reader
        return self._opened_reader

    def get(self, inference_id: str) -> Truth:
        """Return the truth of an inference.

        Raise MODEL_NOT_FOUND if there is no such inference, or none with a truth.
        """
        truth = self.reader.get(inference_id).truth
        if truth is None:
            raise InferenceError(ErrorKind.MODEL_NOT_FOUND, f"The inference {quote_value(inference_id)} has no truth")
        return truth

    def put(self, inference_id: str, answer: RightAnswer, judges: Sequence[TruthJudge] = ()) -> Truth:
        """Store the truth of an inference, and return it. Right records need one of `judges`.

        Raise InferenceError as `get`; INVALID_REQUEST if the answer does not fit the inference.
        """
        inference = self.reader.get(inference_id)
        if (answer.records is None) == (answer.verdict is None):
            raise invalid("Expected either records or a verdict")
        if inference.records is None:
            raise invalid(f"Expected an inference with an answer, got {inference.error or 'an error'}", "id")
        if answer.records is None:
            truth = truth_of_verdict(answer)
        else:
            if not judges:
                raise invalid(
                    "Expected a verdict: the plugin evaluation, which compares records, is missing", "records"
                )
            truth = judges[0](inference, answer)
        self.write({inference.id: truth})
        return truth

    def withdraw(self, inference_id: str) -> None:
        """Remove the truth of an inference. Raise MODEL_NOT_FOUND if there is no such inference."""
        self.write({self.reader.get(inference_id).id: None})

    def write(self, truths: Mapping[str, Truth | None]) -> Collection[str]:
        """Store truths by the id of their inference in one durable transaction; None removes a truth.

        Return the ids of the inferences that exist.
        """
        redacted = {
            name: truth and msgspec.structs.replace(truth, records=self._redaction.value(truth.records))
            for name, truth in truths.items()
        }
        try:
            return self._store.set_documents("truth", redacted)
        except StoreError as error:
            raise _unavailable(error) from None

    def close(self) -> None:
        """Close the store."""
        self._store.close()


def truth_of_verdict(answer: RightAnswer) -> Truth:
    """Return a truth without records."""
    verdict, now = answer.verdict or "right", time.time_ns() // 1000
    return Truth(verdict=verdict, source=answer.source, comment=answer.comment, time=now)


def _unavailable(error: StoreError) -> InferenceError:
    return InferenceError(ErrorKind.MODEL_NOT_READY, f"The truth could not be stored: {error}", retry_after=1)
