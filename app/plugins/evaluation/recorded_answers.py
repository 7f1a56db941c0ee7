"""Measure recorded answers: match them with the images of a dataset, or measure them by the truths in their store."""

import hashlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path, PurePosixPath

import msgspec

from app.clients.protocol import Records
from app.core.cli.terminal import counted
from app.plugins.evaluation.answers import parse_records
from app.plugins.evaluation.collection import CollectedAnswers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item, LabelledObject
from app.plugins.evaluation.datasets.files import with_slashes
from app.plugins.evaluation.masks import predicted_mask
from app.plugins.evaluation.metrics.intervals import format_interval, wilson
from app.plugins.evaluation.truths.judging import item_of
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.inference_query import ANY_REASON, NO_ERROR, RANDOM_SAMPLE, InferenceQuery
from app.plugins.recording.query.reader import default_reason, open_recordings
from app.plugins.recording.stores.store import parse_dsn
from app.report import Figure
from tasks.task import TaskType

_Index = Mapping[str, Sequence[Item]]
_CHOOSE_VERSION = "export one with charioteer inferences --model-version VERSION --to FILE.jsonl for --recorded"
IMAGE_NAMES = ("file_name", "filename", "file", "image_name", "image", "name", "path")
"""Metadata keys that clients use for the name of an image."""


def read_recorded(dataset: Dataset, store: str, model: str | None) -> CollectedAnswers:
    """Return the recorded answers for a dataset.

    Raise EvaluationError when there are no recordings of the images. Raise InferenceError when the store cannot be
    read. Raise SettingsError when its address is invalid.
    """
    query = InferenceQuery(model=model, error=NO_ERROR, reason=default_reason(store))
    recorded = chain.from_iterable(open_recordings(store).batches(query))
    collected, recorded_model, repeated = match_recorded(dataset, recorded, model)
    collected.source = f"{recorded_model}, as recorded in {parse_dsn(store).display_name}"
    threshold = "the score threshold of their requests, usually 0.5, which lowers average precision"
    collected.notes = [f"Recorded predictions use {threshold}."]
    if repeated:
        note = f"Images recorded more than once: {repeated}; their latest predictions count."
        collected.notes = [*collected.notes, note]
    return collected


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


def read_truths(
    store: str, model: str | None, images: Path | None, reason: str
) -> tuple[Dataset, CollectedAnswers, tuple[Figure, ...]]:
    """Return the inferences of a store that have a truth, as a data set with answers, and further figures.

    Raise EvaluationError when there are none, or of several models. Raise InferenceError when the store cannot be
    read. Raise SettingsError when the address of the store is invalid.
    """
    query = InferenceQuery(model=model, truth="yes", error=NO_ERROR, reason=reason)
    found = [item for batch in open_recordings(store).batches(query) for item in batch if not item.explanation]
    if not found:
        way_on = "; --reason any measures those of all rules" if reason == RANDOM_SAMPLE else ""
        raise EvaluationError(f"No inference with --reason {reason} has a truth{way_on}")
    recorded_model = only_model({f"{item.model}:{item.version}" for item in found}, "truths")
    try:
        task = TaskType(found[0].task_type)
    except ValueError as error:
        raise EvaluationError(f"{recorded_model} cannot be measured: {error}") from None
    # Recall and average precision would be too low if labels were missing, so other truths are left out.
    complete = [
        (item, item.truth.records)
        for item in found
        if item.truth and item.truth.complete and item.truth.records is not None
    ]
    items = tuple(_labelled(item, right, task, images or Path()) for item, right in complete)
    value, note = _right_answers(found)
    left_out = len(found) - len(complete)
    notes = [note, "Recorded answers have the score threshold of their requests, which lowers average precision."]
    if reason == ANY_REASON:
        notes.append("Rules select difficult images, so that the model seems worse than it is.")
    if left_out:
        notes.append(f"{left_out} truths without complete records count only for the right answers.")
    # A label that only the model has is a mistake too: a complete truth has all objects.
    records = (record for item, right in complete for record in (*(item.records or ()), *right))
    names = {str(record["label"]) for record in records if "label" in record}
    dataset = Dataset(
        path=Path(parse_dsn(store).display_name),
        format="truths",
        tasks=(task,),
        labels=tuple(sorted(names)),
        items=items,
        notes=tuple(notes),
    )
    answers = {item.id: item.records or () for item, _ in complete}
    figure = Figure(name="right", title="right answers, by the verdicts of all truths", value=value)
    return dataset, CollectedAnswers(answers, source=f"{recorded_model}, as recorded"), (figure,)


def _labelled(inference: RecordedInference, right: Records, task: TaskType, images: Path) -> Item:
    item = item_of(inference, images)
    if task.returns == "classes":
        return msgspec.structs.replace(item, label=str(right[0]["label"]))
    if task.returns == "texts":
        question = str((inference.records or [{}])[0].get("prompt", ""))
        return msgspec.structs.replace(item, question=question, answers=tuple(str(text["answer"]) for text in right))
    shapes = parse_records([{**record, "score": 1.0} for record in right], item, task).predictions
    objects = tuple(
        LabelledObject(
            label=shape.label,
            box=shape.box,
            rings=shape.rings if task.geometry == "oriented" else None,
            mask=predicted_mask(shape, item.width, item.height) if task.geometry == "contour" else None,
        )
        for shape in shapes
    )
    return msgspec.structs.replace(item, objects=objects)


def _right_answers(found: Sequence[RecordedInference]) -> tuple[float, str]:
    """Return the share of right answers, and a sentence with its interval."""
    right = sum(item.truth is not None and item.truth.verdict == "right" for item in found)
    share = right / len(found)
    interval = format_interval(wilson(share, len(found)))
    return share, f"Right answers: {share:.4f}, {interval} ({counted(len(found), 'truth')})."
