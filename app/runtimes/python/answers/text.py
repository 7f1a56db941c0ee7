"""What models of text may return."""

import numpy as np

from app.runtimes.python.answers.findings import read_parallel, read_records, table
from app.runtimes.python.answers.reading import Labels, described, numbers, refused, text
from tasks.text_generation import ContinuedText, Generation
from tasks.token_classification import Entities, TaggedText

__all__ = ("read_entities", "read_generation")

_PART = ("start", "end")


def read_entities(value: object, path: str, item: TaggedText, labels: Labels) -> Entities:
    """The entities of one text: records with entity_group, score, start and end, or arrays side by side with spans.

    Raises:
        InferenceError: MODEL_FAILED naming what cannot be used.
    """
    if (parallel := read_parallel(value, path, "spans", labels)) is not None:
        findings, (given, at) = parallel
        spans = numbers(given, at, ("N", 2))
    elif (records := read_records(value, path, _PART, labels, label="entity_group")) is not None:
        findings, read = records
        at = path
        spans = table(read, path, _PART)
    else:
        forms = "Entities, spans with scores and labels, or a list of records with entity_group, score, start and end"
        raise refused(path, forms, described(value))
    if len(spans) != len(findings.labels) or len(spans) != len(findings.scores):
        raise refused(path, "as many spans as scores and labels", f"{len(spans)} spans")
    whole = item.item.text
    for index, (start, end) in enumerate(spans.tolist()):
        if not (start.is_integer() and end.is_integer() and 0 <= start <= end <= len(whole)):
            raise refused(f"{at}[{index}]", f"characters within 0..{len(whole)}, start <= end", f"{start:g}..{end:g}")
    places = spans.astype(np.int32)
    words = [whole[start:end] for start, end in places.tolist()]
    return Entities(labels=findings.labels, scores=findings.scores, words=words, spans=places)


def read_generation(value: object, path: str, item: ContinuedText, labels: Labels) -> Generation:
    """The continuation of one text, without the text itself.

    Raises:
        InferenceError: MODEL_FAILED for anything but a text.
    """
    del item, labels
    return Generation(text(value.text if isinstance(value, Generation) else value, path))
