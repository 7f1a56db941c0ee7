"""Convert the return values of text models."""

import numpy as np

from app.runtimes.python.answers.findings import read_parallel, read_records, table
from app.runtimes.python.answers.reading import Labels, described, numbers, refused, text
from tasks.text_generation import ContinuedText, Generation
from tasks.token_classification import Entities, TaggedText

__all__ = ("read_entities", "read_generation")

_SPAN = ("start", "end")


def read_entities(value: object, path: str, item: TaggedText, labels: Labels) -> Entities:
    """Read the entities of one text: records with entity_group, score, start and end, or parallel arrays with spans.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    if (parallel := read_parallel(value, path, "spans", labels)) is not None:
        findings, (given, at) = parallel
        spans = numbers(given, at, ("N", 2))
    elif (records := read_records(value, path, _SPAN, labels, label="entity_group")) is not None:
        findings, read = records
        at = path
        spans = table(read, path, _SPAN)
    else:
        forms = "Entities, spans with scores and labels, or a list of records with entity_group, score, start and end"
        raise refused(path, forms, described(value))
    if len(spans) != len(findings.labels) or len(spans) != len(findings.scores):
        raise refused(path, "equal numbers of spans, scores and labels", f"{len(spans)} spans")
    source = item.item.text
    for index, (start, end) in enumerate(spans.tolist()):
        if not (start.is_integer() and end.is_integer() and 0 <= start <= end <= len(source)):
            raise refused(f"{at}[{index}]", f"characters within 0..{len(source)}, start <= end", f"{start:g}..{end:g}")
    integers = spans.astype(np.int32)
    words = [source[start:end] for start, end in integers.tolist()]
    return Entities(labels=findings.labels, scores=findings.scores, words=words, spans=integers)


def read_generation(value: object, path: str, item: ContinuedText, labels: Labels) -> Generation:
    """Read the continuation of one text, without the text itself.

    Raises:
        InferenceError: MODEL_FAILED for anything but a text.
    """
    del item, labels
    return Generation(text(value.text if isinstance(value, Generation) else value, path))
