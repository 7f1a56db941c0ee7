"""Right answers as users send them: check them, and compare them with the recorded answer."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.clients.protocol import Records
from app.plugins.evaluation.agreement import compare_answers
from app.plugins.evaluation.answers import infer_task, parse_records
from app.plugins.evaluation.dataset import EvaluationError, Item
from app.plugins.evaluation.metrics.texts import exact_match
from app.plugins.recording.images import image_path
from app.plugins.recording.inference import RecordedInference, Truth, check_numbers
from app.plugins.recording.truth_store import RightAnswer, truth_of_verdict
from tasks.inference.error import invalid
from tasks.task import all_task_types

Kind = str
"""What an answer consists of: the geometry of objects, or else what the task returns."""

_OBJECTS: Sequence[Kind] = ("box", "oriented", "contour")


def kind_of(task_type: str) -> Kind:
    """Return the kind of the answers of a task type; "" if no model answered, or this server has no such type."""
    return next((task.geometry or task.returns for task in all_task_types() if task == task_type), "")


def records_by_kind(answer: RightAnswer) -> Mapping[Kind, Records]:
    """Return the records by the kind of answers that they can correct; empty for a verdict.

    Raise INVALID_REQUEST if there are both or neither, or if the records are of no known form.
    """
    if (answer.records is None) == (answer.verdict is None):
        raise invalid("Expected either records or a verdict")
    if answer.records is None:
        return {}
    if not answer.records:
        return dict.fromkeys(_OBJECTS, ())
    try:
        task = infer_task(answer.records)
    except ValueError as error:
        raise invalid(str(error), "records") from None
    assert task is not None  # noqa: S101  there are records
    return {task.geometry or task.returns: answer.records}


def judge(inference: RecordedInference, answer: RightAnswer) -> Truth:
    """Return the truth of an inference from its right records, as a `TruthJudge`."""
    kinds, kind = records_by_kind(answer), kind_of(inference.task_type)
    if kind not in kinds:
        got = " or ".join(kinds) if answer.records else "none"
        raise invalid(f"Expected records of {inference.task_type}, got {got}", "records")
    return make_truth(inference, answer, kinds[kind])


def make_truth(inference: RecordedInference, answer: RightAnswer, records: Records | None) -> Truth:
    """Return the truth of an inference, with a verdict on its answer.

    Raise INVALID_REQUEST, naming the field.

    Args:
        inference: what it is about.
        answer: its verdict counts without `records`.
        records: the right records, of the kind of the inference's answer.
    """
    truth = truth_of_verdict(answer)
    if records is None:
        return truth
    stored = [{name: value for name, value in record.items() if name != "score"} for record in records]
    try:
        verdict = "right" if _is_right(inference, stored, complete=answer.complete) else "wrong"
        truth = msgspec.structs.replace(truth, verdict=verdict, records=stored, complete=answer.complete)
        check_numbers(msgspec.structs.replace(inference, truth=truth))
    except (EvaluationError, ValueError) as error:
        raise invalid(str(error), "records") from None
    return truth


def item_of(inference: RecordedInference, images: Path = Path()) -> Item:
    """Return the image of an inference as an item of a dataset; its file is in the folder of recorded images."""
    image = inference.image
    metadata = {entry.key: str(entry.value) for entry in inference.metadata}
    if image is None:
        return Item(id=inference.id, image=Path(), metadata=metadata)
    file = image_path(images, image.digest)
    return Item(id=inference.id, image=file, width=image.width, height=image.height, metadata=metadata)


def _is_right(inference: RecordedInference, right: Records, *, complete: bool) -> bool:
    """Return whether the answer is right: the same class or text; for objects, one of the same label at IoU >= 0.5."""
    answer, kind = inference.records or (), kind_of(inference.task_type)
    if kind == "texts":
        texts = [record.get("answer") for record in right]
        if len(answer) != 1 or not isinstance(answer[0].get("answer"), str):
            raise ValueError("Expected a verdict, because the inference has no single answer to one question")
        if not all(isinstance(text, str) for text in texts):
            raise ValueError("Expected the text of each right answer as answer")
        return exact_match(str(answer[0]["answer"]), [str(text) for text in texts]) == 1
    if kind == "classes" and len(right) != 1:
        raise ValueError(f"Expected one record with the right label, got {len(right)}")
    if not complete and not right:
        raise ValueError("Expected at least one object, unless complete is true")
    scored = [{**record, "score": 1.0} for record in right]
    item = item_of(inference)
    task = infer_task(scored)
    shapes = parse_records(scored, item, task).predictions if task else ()
    if any(shape.box and (shape.box[0] > shape.box[2] or shape.box[1] > shape.box[3]) for shape in shapes):
        raise ValueError("Expected boxes with xmin <= xmax and ymin <= ymax")
    agreement = compare_answers([item], {item.id: scored}, {item.id: answer})
    if agreement.matched is None:
        return agreement.labels == 1
    return agreement.matched == len(right) and (not complete or agreement.matched == len(answer))
