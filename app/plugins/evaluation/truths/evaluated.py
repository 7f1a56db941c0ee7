"""Measure recorded answers by the truths in their store, without another data set."""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from app.clients.protocol import Records
from app.core.cli.terminal import counted
from app.plugins.evaluation.answers import parse_records
from app.plugins.evaluation.collection import CollectedAnswers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item, LabelledObject
from app.plugins.evaluation.masks import predicted_mask
from app.plugins.evaluation.metrics.intervals import format_interval, wilson
from app.plugins.evaluation.recorded_answers import only_model
from app.plugins.evaluation.truths.judging import item_of
from app.plugins.recording.inference import RecordedInference
from app.plugins.recording.inference_query import ANY_REASON, NO_ERROR, RANDOM_SAMPLE, InferenceQuery
from app.plugins.recording.query.reader import open_recordings
from app.plugins.recording.stores.store import parse_dsn
from app.report import Figure
from tasks.task import TaskType


class RecordedTruths(msgspec.Struct, frozen=True, kw_only=True):
    """Recorded answers whose labels are in the store, too, with a label of the model, and further figures."""

    dataset: Dataset
    source: str
    collected: CollectedAnswers
    figures: tuple[Figure, ...]


def read_truths(store: str, model: str | None, images: Path | None, reason: str) -> RecordedTruths:
    """Return the inferences of a store that have a truth, as a data set with answers.

    Raise EvaluationError when there are none, or of several models. Raise InferenceError when the store cannot be
    read. Raise SettingsError when the address of the store is invalid.
    """
    query = InferenceQuery(model=model, truth="yes", error=NO_ERROR, reason=reason)
    found = [item for batch in open_recordings(store).batches(query) for item in batch if not item.explanation]
    if not found:
        way_on = "; --reason any measures those of all rules" if reason == RANDOM_SAMPLE else ""
        raise EvaluationError(f"No inference with --reason {reason} has a truth{way_on}")
    recorded_model = only_model({f"{item.model}:{item.version}" for item in found}, "truths")
    task = TaskType(found[0].task_type)
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
    answers = CollectedAnswers({item.id: item.records or () for item, _ in complete})
    figure = Figure(name="right", title="right answers, by the verdicts of all truths", value=value)
    return RecordedTruths(
        dataset=dataset, source=f"{recorded_model}, as recorded", collected=answers, figures=(figure,)
    )


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
