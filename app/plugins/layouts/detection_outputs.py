"""Find boxes, scores and classes among the outputs of a detector: by their names, or else by their shapes.

The names come from the exporters in `detection_conventions`. All of them may have one prefix, such as ``graph2_``, and
TensorFlow's ``:0`` at the end.
"""

from collections.abc import Mapping, Sequence

import msgspec

from app.core.runtimes.onnxruntime.layouts.layout import GraphOutput, GraphView

_NAMES = {
    "boxes": ("boxes", "bboxes", "det_boxes", "pred_boxes", "detection_boxes", "post_nms_boxes"),
    "scores": ("scores", "det_scores", "pred_scores", "detection_scores", "post_nms_scores", "confs", "confidence"),
    "classes": ("labels", "classes", "det_classes", "pred_classes", "detection_classes"),
    "count": ("num_dets", "num_detections", "num_predictions", "bbox_num"),
    "masks": ("masks", "pred_masks", "detection_masks"),
    "keypoints": ("keypoints", "pred_keypoints", "post_nms_joints"),
    "dets": ("dets",),
    "rows": ("flat_predictions",),
}
"""Names, in lower case, by role. ``dets`` are boxes with their scores, and ``rows`` have the class, too."""
_BOX, _DETS = 4, 5
_ROWS = (6, 7)
"""Columns of a row: box, score and class, and before them maybe the number of the image."""
_MAX_BOX_MASK = 56
"""Pixels. Masks of a box have 14, 28, 33 or 56; masks of the image have the size of the input."""


class DetectionOutputs(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The outputs of a detector by their roles.

    Attributes:
        by_names: whether their names show the roles.
        unbatched: whether they have no batch dimension: (N, 4), (N,) and (N,), or rows (N, 6 or 7).
        are_pairs: whether each box has the scores of all classes, so that duplicates are not suppressed yet.
        has_order: whether only the order of the outputs distinguishes scores and classes.
    """

    roles: Mapping[str, GraphOutput]
    by_names: bool
    unbatched: bool
    are_pairs: bool = False
    has_order: bool = False


def find_outputs(view: GraphView, *, declared: bool) -> DetectionOutputs | None:
    """Return the outputs of a detector; None if their shapes do not fit. Shapes alone suffice if it is `declared`."""
    named = _by_name(view.outputs)
    if not declared and {"boxes", "dets", "rows"} & named.keys():
        return _checked(named, view, by_names=True)
    if (found := _checked(named, view, by_names=True)) is not None:
        return found
    shaped = _by_shape(view.outputs)
    # Only PaddleDetection has such an input; the names of its outputs are arbitrary.
    is_paddle = bool(view.inputs.scales)
    if not declared and not is_paddle and not _are_likely(shaped, view):
        return None
    return _checked(shaped, view, by_names=is_paddle)


def _are_likely(roles: Mapping[str, GraphOutput], view: GraphView) -> bool:
    """Return whether shapes alone show a detector whose settings are missing, rather than another model."""
    rows = roles.get("rows")
    if rows is not None:
        if rows.blank.ndim == 3:
            # Core reads such rows, unless their class numbers begin with 1, as in effdet.
            return view.classes is not None and bool(rows.blank[..., -1].max(initial=0) == view.classes)
        # Scores of six classes have this shape, too.
        return len(rows.blank) != max(view.inputs.batch, 1)
    return len(roles) > 1 and len(view.outputs) - len(roles) <= 1


def _by_name(outputs: Sequence[GraphOutput]) -> Mapping[str, GraphOutput]:
    """Return the outputs by role, for the prefix with which most of the names are known."""
    by_prefix: dict[str, dict[str, GraphOutput]] = {"": {}}
    for output in outputs:
        name = output.name.lower().split(":")[0]
        for role, names in _NAMES.items():
            for prefix in (name.removesuffix(known) for known in names if name.endswith(known)):
                if not prefix or prefix[-1] in "/._":
                    by_prefix.setdefault(prefix, {}).setdefault(role, output)
    return max(by_prefix.items(), key=lambda pair: (len(pair[1]), -len(pair[0])))[1]


def _by_shape(outputs: Sequence[GraphOutput]) -> Mapping[str, GraphOutput]:
    """Return the outputs by role; of several with one shape, in the order boxes, scores, classes."""
    roles: dict[str, GraphOutput] = {}
    for role, widths in (("boxes", (_BOX,)), ("dets", (_DETS,)), ("rows", _ROWS)):
        fitting = (output for output in outputs if output.is_float and output.blank.ndim in (2, 3))
        body = next((output for output in fitting if output.shape[-1] in widths), None)
        if body is not None:
            roles[role] = body
            break
    else:
        return {}
    lead = body.shape[:-1]
    for output in outputs:
        is_flat = output.shape in (lead, (*lead, 1))
        if output is body:
            continue
        if is_flat and not (output.is_float and "scores" not in roles and role == "boxes"):
            roles.setdefault("classes", output)
        elif is_flat or (output.is_float and output.blank.ndim == 3 and lead[-1] in output.shape[1:]):
            roles.setdefault("scores", output)
        elif output.blank.size == (1 if len(lead) == 1 else lead[0]) and not output.is_float:
            roles.setdefault("count", output)
    return roles


def _checked(roles: Mapping[str, GraphOutput], view: GraphView, *, by_names: bool) -> DetectionOutputs | None:
    """Return the outputs that belong together; None if the necessary ones are missing or their shapes differ."""
    body = next((roles[role] for role in ("rows", "dets", "boxes") if role in roles), None)
    if body is None or not body.is_float or body.blank.ndim < 2:
        return None
    width, lead = body.shape[-1], body.shape[:-1]
    if len(lead) == 3 and lead[2] == 1:
        lead = lead[:2]
    unbatched = len(lead) == 1
    if len(lead) > 2 or (unbatched and view.inputs.batch not in (-1, 1)):
        return None
    kept = {role: output for role, output in roles.items() if role in ("count", "masks", "keypoints")}
    kept = {role: output for role, output in kept.items() if _fits(role, output, lead, view)}
    scores, classes = roles.get("scores"), roles.get("classes")
    if classes is not None and classes.shape not in (lead, (*lead, 1)):
        classes = None
    has_order, are_pairs = False, False
    if "rows" in roles:
        if width not in _ROWS and not (by_names and width > max(_ROWS) and (width - min(_ROWS)) % 3 == 0):
            return None
        members = {"rows": body}
    elif "dets" in roles:
        if width != _DETS or classes is None:
            return None
        members = {"dets": body, "classes": classes}
    elif scores is None or width != _BOX or not scores.is_float:
        return None
    elif scores.shape in (lead, (*lead, 1)) and (classes is not None or "count" in kept):
        members = {"boxes": body, "scores": scores} | ({} if classes is None else {"classes": classes})
        has_order = not by_names and classes is not None and classes.is_float
    elif not unbatched and _are_candidates(scores, lead):
        members, are_pairs = {"boxes": body, "scores": scores}, True
    else:
        return None
    return DetectionOutputs(
        roles=members | ({} if are_pairs else kept),
        by_names=by_names,
        unbatched=unbatched,
        are_pairs=are_pairs,
        has_order=has_order and view.model_files.settings.outputs is None,
    )


def _are_candidates(scores: GraphOutput, lead: tuple[int, ...]) -> bool:
    """Return whether the scores [b, N], [b, N, nc] or [b, nc, N] belong to boxes [b, N, 4]."""
    return (
        scores.blank.ndim in (2, 3)
        and scores.blank.size > 0
        and scores.shape[0] == lead[0]
        and lead[1] in scores.shape[1:]
    )


def _fits(role: str, output: GraphOutput, lead: tuple[int, ...], view: GraphView) -> bool:
    """Return whether an output besides the boxes has a shape that is read."""
    rank = output.blank.ndim - len(lead)
    if role == "count":
        return output.blank.size == (1 if len(lead) == 1 else lead[0])
    if output.shape[: len(lead)] != lead:
        return False
    if role == "keypoints":
        return output.is_float and rank == 2 and output.shape[-1] in (2, 3)
    if rank != 2 and not (rank == 3 and output.shape[-3] == 1):
        return False
    height, width = output.shape[-2:]
    return (rank == 2 and height == width <= _MAX_BOX_MASK) or (height, width) == view.size
