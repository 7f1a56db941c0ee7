"""Match recorded inferences with the images of a dataset."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import PurePosixPath

from app.plugins.evaluation.collection import CollectedAnswers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item
from app.plugins.evaluation.datasets.files import with_slashes
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.inference_query import NO_ERROR, InferenceQuery
from app.plugins.recording.query.reader import default_reason, open_recordings
from app.plugins.recording.stores.store import parse_dsn

_Index = Mapping[str, Sequence[Item]]
_CHOOSE_VERSION = "export one with charioteer inferences --model-version VERSION --to FILE.jsonl for --recorded"
IMAGE_NAMES = ("file_name", "filename", "file", "image_name", "image", "name", "path")
"""Metadata keys that clients use for the name of an image."""


def read_recorded(dataset: Dataset, store: str, model: str | None) -> tuple[str, CollectedAnswers, Sequence[str]]:
    """Return a label for the report, the recorded answers, and notes.

    Raise EvaluationError when there are no recordings of the images. Raise InferenceError when the store cannot be
    read. Raise SettingsError when its address is invalid.
    """
    reader, name = open_recordings(store), parse_dsn(store).display_name
    query = InferenceQuery(model=model, error=NO_ERROR, reason=default_reason(store))
    recorded = chain.from_iterable(reader.batches(query))
    collected, recorded_model, repeated = match_recorded(dataset, recorded, model)
    notes = [
        "Recorded predictions use the score threshold of their requests, usually 0.5, which lowers average precision."
    ]
    if repeated:
        notes.append(f"Images recorded more than once: {repeated}; their latest predictions count.")
    return f"{recorded_model}, as recorded in {name}", collected, notes


def match_recorded(
    dataset: Dataset, recorded: Iterable[RecordedInference], model: str | None = None
) -> tuple[CollectedAnswers, str, int]:
    """Find recordings of the dataset's images by the digest of the file, or else by its name in the metadata.

    Return the answers, the model as ``name:version``, and how many images were recorded repeatedly; the latest counts.
    The order of `recorded` is free; rejected requests, explanations and models other than `model` are skipped. Raise
    EvaluationError when there are no recordings of the images, or recordings of several models.
    """
    by_digest, by_id, by_name = _index(dataset.items)
    latest: dict[str, RecordedInference] = {}
    repeated: set[str] = set()
    models: set[str] = set()
    for record in recorded:
        if record.records is None or record.explanation or (model is not None and record.model != model):
            continue
        digest = record.image.digest if record.image else ""
        for item in by_digest.get(digest) or _find_by_name(record, by_id, by_name):
            models.add(f"{record.model}:{record.version}")
            if item.id in latest:
                repeated.add(item.id)
            if item.id not in latest or latest[item.id].started <= record.started:
                latest[item.id] = record
    if not latest:
        of_model = "" if model is None else f" with the model {model}"
        shared_names = any(item.image.name not in by_name for item in dataset.items)
        way_on = "; file names that several images have need their folder there" if shared_names else ""
        reason = f"None of the {len(dataset.items)} images was recorded{of_model}"
        trials = "; trials, such as requests of the page, count only in an export of --reason any"
        raise EvaluationError(f"{reason}, by file or by name in the metadata{way_on}{trials}")
    found_model = only_model(models, "recordings")
    collected = CollectedAnswers()
    for item in dataset.items:
        if item.id in latest:
            collected.records[item.id] = latest[item.id].records or ()
        else:
            way_on = "" if item.image.name in by_name else " by file, or by name with folder"
            collected.failures[item.id] = f"was not recorded{way_on}"
    return collected, found_model, len(repeated)


def only_model(models: Collection[str], of_what: str) -> str:
    """Return the only one of models as ``name:version``. Raise EvaluationError if there are several."""
    if len(models) == 1:
        return next(iter(models))
    way_on = "choose with --name" if len({name.rpartition(":")[0] for name in models}) > 1 else _CHOOSE_VERSION
    raise EvaluationError(f"Expected {of_what} of one model, got {', '.join(sorted(models))}; {way_on}")


def _index(items: Sequence[Item]) -> tuple[_Index, _Index, _Index]:
    """Index items by the digest of their image, by id, and by file name without folders."""
    digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in {item.image for item in items}}
    by_digest, by_name = defaultdict[str, list[Item]](list), defaultdict[str, list[Item]](list)
    for item in items:
        by_digest[digests[item.image]].append(item)
        by_name[item.image.name].append(item)
    # A file name that occurs in several folders is ambiguous.
    unambiguous = {name: found for name, found in by_name.items() if len({item.image for item in found}) == 1}
    return by_digest, {item.id: [item] for item in items}, unambiguous


def _find_by_name(recorded: RecordedInference, by_id: _Index, by_name: _Index) -> Sequence[Item]:
    for entry in recorded.metadata:
        if entry.key.lower() in IMAGE_NAMES and isinstance(entry.value, str):
            items = by_id.get(entry.value) or by_name.get(PurePosixPath(with_slashes(entry.value)).name)
            if items:
                return items
    return ()
