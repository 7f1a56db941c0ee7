"""Recognise detectors whose outputs are boxes, scores and classes, whatever their exporter.

`detection_outputs` finds the outputs, and `detection_conventions` decides how they are read. A model with two readings
is rejected, and the error names the setting that decides.
"""

import json
from collections.abc import Mapping
from functools import partial

import msgspec

from app.core.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match, format_outputs
from app.plugins.layouts.detection_conventions import Convention, decide_reading, names_background, pair_scores
from app.plugins.layouts.detection_decoding import Reading, find_candidates, find_objects, outline
from app.plugins.layouts.detection_outputs import DetectionOutputs, find_outputs
from app.plugins.layouts.settings import DetectionSettings
from metadata.model import Fact, Origin
from tasks.task import TaskType

_NAME = "detections"
_BOX = 4
_TEXTS = {
    "xyxy": "left, top, right, bottom",
    "yxyx": "top, left, bottom, right",
    "xywh": "left, top, width, height",
    "cxcywh": "centre x and y, width, height",
    "pixel": "in pixels of the input",
    "fraction": "in fractions of the input",
}


def _recognise(view: GraphView) -> Match | None:
    is_declared = view.declared_layout == _NAME
    found = find_outputs(view, declared=is_declared)
    has_contract = view.model_files.metadata.contract is not None and not is_declared
    if found is None or has_contract or view.declared_layout not in (None, _NAME):
        return None
    declared = view.model_files.settings.of(DetectionSettings)
    convention, choices = decide_reading(found, view, declared)
    masks = "masks" in found.roles and view.declared_task in (None, TaskType.IMAGE_SEGMENTATION)
    roles = [role for role in found.roles if role not in ("masks", "keypoints")]
    roles += ["masks"] if masks else ["keypoints"] if "keypoints" in found.roles else []
    reading, classes = _reading(found, convention, view, tuple(roles))
    origin = Origin.MODEL_FILE if found.by_names else Origin.SHAPES
    decode = find_candidates if found.are_pairs else find_objects
    return Match(
        layout=_NAME,
        task_type=TaskType.IMAGE_SEGMENTATION if masks else TaskType.OBJECT_DETECTION,
        decode=partial(outline if masks else decode, reading=reading),
        outputs=[found.roles[role] for role in roles],
        keypoints=None if masks else reading.points,
        unbatched=found.unbatched,
        by_names=found.by_names,
        origin=origin,
        task_origin=origin,
        classes=classes,
        preprocessing=convention.preprocessing,
        facts=_facts(convention, declared, origin),
        question=_question(found, choices, declared, view),
    )


def _reading(
    found: DetectionOutputs, convention: Convention, view: GraphView, roles: tuple[str, ...]
) -> tuple[Reading, int | None]:
    """Return the reading, and the number of labels that it needs; None if the outputs do not show it."""
    slots = None
    if found.are_pairs:
        slots = pair_scores(found.roles["scores"].blank[0], found.roles["boxes"].shape[1]).shape[1]
    background = convention.background if isinstance(convention.background, int) else None
    number = background % slots if background is not None and slots else background
    # Labels may leave the background out. Without labels, numbers of classes stay as the graph returns them.
    leaves_out = number is not None and not names_background(view, number)
    skipped = number if leaves_out and (view.classes is not None or slots is not None) else None
    classes, points = None if slots is None else slots - leaves_out, None
    if "rows" in found.roles and (width := found.roles["rows"].shape[-1]) > _BOX + 3:
        points, classes = ((width - _BOX - 2) // 3, 3), 1
    elif not found.are_pairs and not {"classes", "rows"} & found.roles.keys():
        classes = 1
    if "keypoints" in roles:
        points = found.roles["keypoints"].shape[-2], found.roles["keypoints"].shape[-1]
    return Reading(roles=roles, convention=convention, background=number, skipped=skipped, points=points), classes


def _facts(convention: Convention, declared: DetectionSettings, origin: Origin) -> list[Fact]:
    facts: list[Fact] = []
    if convention.boxes and convention.unit:
        known = declared.boxes is not None and declared.unit is not None
        text = f"{_TEXTS[convention.boxes]}, {_TEXTS[convention.unit]}"
        facts.append(Fact("boxes", text, Origin.DECLARED if known else origin))
    if isinstance(convention.background, int):
        name = "the last class" if convention.background < 0 else f"class {convention.background}"
        own = Origin.DECLARED if declared.background is not None else origin
        facts.append(Fact("background", f"{name}, never returned", own))
    return facts


def _question(
    found: DetectionOutputs,
    choices: Mapping[str, tuple[object, object]],
    declared: DetectionSettings,
    view: GraphView,
) -> str:
    """Return why several readings remain, and what to declare; "" if one remains."""
    if not choices and not found.has_order:
        return ""
    known = {name: value for name, value in msgspec.structs.asdict(declared).items() if value is not None}
    line: dict[str, object] = {"layout": _NAME}
    if found.has_order:
        line["outputs"] = [f"NAME OF {role.upper()}" for role in found.roles]
    line[_NAME] = known | {name: first for name, (first, _) in choices.items()}
    readings = [f'"{name}": {json.dumps(first)} or {json.dumps(second)}' for name, (first, second) in choices.items()]
    return (
        f"its outputs {format_outputs(view.outputs)} can be boxes with scores and classes, in several readings: "
        f"{', '.join(readings) or 'scores and classes have one shape'}; declare {json.dumps(line)} in "
        "model-settings.json, with the values that hold; docs/models.md#detections explains them"
    )


LAYOUTS = (
    Layout(
        (_NAME,),
        (TaskType.OBJECT_DETECTION, TaskType.IMAGE_SEGMENTATION),
        "boxes [b, N, 4], scores [b, N] and classes [b, N]; boxes and scores [b, N, nc]; or rows [n, 6] or [n, 7]",
        _recognise,
    ),
)
