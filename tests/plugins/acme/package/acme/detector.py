"""A layout of detectors: rows of centre, size, score and class number in the output ``acme_rows``."""

import numpy as np

from charioteer.plugins import (
    Candidates,
    DetectionInput,
    GraphView,
    Layout,
    Match,
    RawOutputs,
    TaskType,
    best_indices,
)


def decode(answer: RawOutputs, item: DetectionInput) -> Candidates:
    """Return the objects of one image, in pixels of the input: outputs have no batch here."""
    (rows,) = answer.outputs
    chosen = best_indices(rows[:, 4], item.floor, len(rows))
    x, y, width, height, scores, classes = rows[chosen].astype(np.float32).T
    boxes = np.stack([x - width / 2, y - height / 2, x + width / 2, y + height / 2], axis=1)
    return Candidates(boxes=boxes, scores=scores, class_ids=classes.astype(np.intp), extras=boxes[:, :0])


def recognise(view: GraphView) -> Match | None:
    """Return the match of a graph with this output."""
    outputs = view.outputs_named("acme_rows")
    if outputs is None:
        return None
    return Match(layout="acme-rows", task_type=TaskType.OBJECT_DETECTION, outputs=outputs, decode=decode, by_names=True)


LAYOUTS = (Layout(("acme-rows",), (TaskType.OBJECT_DETECTION,), "acme_rows [b, M, 6]", recognise),)
