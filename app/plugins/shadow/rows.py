"""Answers of shadow versions, in the column `shadow` of the recorded inferences that they belong to."""

import logging
import time
from collections.abc import Mapping, Sequence

import msgspec

from app.core.settings.server import SettingsError
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.query.filters import contains
from app.plugins.recording.query.reader import RecordingReader, inference_of
from app.plugins.recording.stores.rows import json_text
from app.plugins.recording.stores.store import Store, StoreError
from app.plugins.recording.stores.tables import recordings

_logger = logging.getLogger(__name__)

_BATCH_SIZE = 64
_ATTEMPTS = 3
"""An answer may come before its inference is recorded. Inferences that are not recorded at all are never found."""
_SECONDS_TO_WAIT = 0.1


class ShadowAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """How the answer of a shadow version agrees with the champion's for one sample."""

    version: str  # the shadow version
    agreed: bool | None = None  # whether labels are equal and every object has a partner; None after an error
    mean_iou: float | None = None  # of objects with a partner of the same label; None without any
    score_difference: float | None = None  # the largest difference between the scores of partners, or of the best class
    champion_ms: float | None = None  # milliseconds of the champion's model for the request
    shadow_ms: float | None = None  # milliseconds of the shadow version's model for the request
    error: str | None = None  # why it did not answer
    records: Sequence[Mapping[str, object]] | None = None  # its answer


class ShadowWriter:
    """Write answers in batches. One thread uses it. `store` is not opened yet."""

    def __init__(self, store: Store) -> None:
        self._store, self._is_open = store, False
        self._new: dict[str, ShadowAnswer] = {}
        self._waiting: dict[str, tuple[ShadowAnswer, int]] = {}

    def add(self, inference_id: str, answer: ShadowAnswer) -> None:
        """Write the answer with the next batch."""
        self._new[inference_id] = answer
        if len(self._new) >= _BATCH_SIZE:
            self.flush()

    def flush(self) -> None:
        """Write the answers whose inference is recorded. If that fails, log the reason and drop them."""
        waiting = self._waiting | {name: (answer, 0) for name, answer in self._new.items()}
        self._new, self._waiting = {}, {}
        if not waiting:
            return
        try:
            if not self._is_open:
                self._store.open()
                self._is_open = True
            found = self._store.set_documents("shadow", {name: answer for name, (answer, _) in waiting.items()})
        except (SettingsError, StoreError) as error:
            _logger.warning("%d shadow answers could not be recorded: %s", len(waiting), error)
            return
        self._waiting = {
            name: (answer, attempts + 1)
            for name, (answer, attempts) in waiting.items()
            if name not in found and attempts + 1 < _ATTEMPTS
        }

    def close(self) -> None:
        """Write the answers that wait, and close the store."""
        self.flush()
        while self._waiting:
            time.sleep(_SECONDS_TO_WAIT)
            self.flush()
        self._store.close()


class ComparedInference(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded inference, and how a shadow version answered it."""

    inference: RecordedInference
    answer: ShadowAnswer


def read_compared(
    reader: RecordingReader, model: str | None = None, version: str | None = None, limit: int | None = None
) -> Sequence[ComparedInference]:
    """Return the inferences with a shadow answer, or the newest `limit`, newest first.

    Raise InferenceError when the store cannot be read.

    Args:
        reader: reads the store.
        model: only this model.
        version: only this shadow version.
        limit: the largest number.
    """
    condition = recordings.c.shadow.is_not(None)
    if model is not None:
        condition &= recordings.c.model == model
    if version is not None:
        condition &= contains(recordings.c.shadow, f'{{"version":{json_text(version)},', reader.dialect)
    decode = msgspec.json.Decoder(ShadowAnswer).decode
    return [
        ComparedInference(inference=inference_of(row), answer=decode(row["shadow"]))
        for row in reader.rows(condition, limit)
    ]
