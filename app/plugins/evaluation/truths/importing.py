"""Read labels of data sets and of annotation tools as right answers of recorded inferences."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Literal, get_args

import numpy as np

from app.clients.protocol import Records
from app.plugins.evaluation.dataset import EvaluationError, Item, LabelErrors, LabelledObject, Ring
from app.plugins.evaluation.datasets.files import DatasetFormat, DatasetOptions, read_json
from app.plugins.evaluation.datasets.read import read_dataset
from app.plugins.evaluation.masks import decode_mask
from app.plugins.evaluation.truths.judging import Kind
from app.plugins.evaluation.truths.label_studio import annotated_images
from app.plugins.evaluation.truths.matching import ImportedLabel, digest_in, read_line
from app.plugins.recording.truth_store import RightAnswer
from tasks.inference.error import InferenceError
from tasks.vision.contours import contours_of_mask

LabelFormat = Literal["jsonl", "label-studio", "coco", "yolo", "image-folder"]

_HALF_PIXEL = 0.5
"""Offset: labels measure from the edge of the first pixel, contours from its centre."""
_TOLERANCE = 1e-3
"""Difference of the diagonals of a rectangle, as a share of their length."""


def read_labels(
    path: Path, label_format: LabelFormat | None, options: DatasetOptions
) -> tuple[str, Sequence[ImportedLabel]]:
    """Return the format and the labels of a file or folder.

    Images are not needed, except by formats that measure in fractions of them. Raise EvaluationError when it cannot be
    read; lists each label that cannot be used, unless `options` skip them.
    """
    if not path.exists():
        raise EvaluationError(f"{path}: there is no such file or folder")
    found = label_format or _format_of(path)
    errors = LabelErrors(lenient=options.skip_bad)
    if found == "jsonl":
        labels = _read_lines(path, errors)
    elif found == "label-studio":
        labels = [_label(item, found) for item in annotated_images(read_json(path), str(path), errors)]
    else:
        known = found if found in get_args(DatasetFormat) else None
        dataset = read_dataset(path, replace(options, format=known, needs_images=False))
        found, labels = dataset.format, [_label(item, dataset.format) for item in dataset.items]
    errors.notes()
    return found, labels


def read_task(task: Mapping[str, object], *, complete: bool) -> Sequence[ImportedLabel]:
    """Return the label of a task of Label Studio; none without a finished annotation.

    Without `complete`, objects are missing that the project has no label for. Raise EvaluationError when an annotation
    cannot be used.
    """
    errors = LabelErrors(advice="")
    items = annotated_images([task], "task", errors)
    errors.notes()
    return [_label(item, "label-studio", complete=complete) for item in items]


def kinds_of(item: Item) -> Mapping[Kind, Records]:
    """Return the labels of an image as records, for each kind of answers that they can correct."""
    kinds: dict[Kind, Records] = {"classes": [{"label": item.label}]} if item.label else {}
    if item.label and not item.objects:
        return kinds
    objects = [label for label in item.objects if not label.ignored]
    if all(label.box for label in objects):
        names = ("xmin", "ymin", "xmax", "ymax")
        kinds["box"] = [{"label": label.label} | dict(zip(names, label.box or (), strict=True)) for label in objects]
    if (item.width or not objects) and all(label.rings and _is_rectangle(label.rings) for label in objects):
        kinds["oriented"] = [_oriented(label, item.width, item.height) for label in objects]
    if all(label.rings or label.mask for label in objects):
        kinds["contour"] = [{"label": label.label, "contour": _contour(label)} for label in objects]
    return kinds


def _format_of(path: Path) -> LabelFormat | None:
    if path.suffix.lower() in (".jsonl", ".ndjson"):
        return "jsonl"
    if path.suffix.lower() == ".json" and path.is_file() and isinstance(read_json(path), list):
        return "label-studio"
    return None


def _read_lines(path: Path, errors: LabelErrors) -> Sequence[ImportedLabel]:
    labels: list[ImportedLabel] = []
    for number, line in enumerate(path.read_bytes().split(b"\n"), 1):
        if line.strip():
            try:
                labels.append(read_line(line))
            except InferenceError as error:
                errors.add(f"{path}:{number}", str(error))
    return labels


def _label(item: Item, source: str, *, complete: bool = True) -> ImportedLabel:
    name = PurePosixPath(item.id).name
    # Exports name images by their digest. For raw pixels it is not the file's.
    digest = digest_in(name)
    if digest is None and item.image.is_file():
        digest = hashlib.sha256(item.image.read_bytes()).hexdigest()
    complete = complete and not any(label.ignored for label in item.objects)
    return ImportedLabel(
        id=item.metadata.get("inference"),
        digest=digest,
        task=f"{item.metadata['task']} {name}" if "task" in item.metadata else None,
        name=name,
        answer=RightAnswer(complete=complete, source=source),
        records=kinds_of(item),
    )


def _is_rectangle(rings: Sequence[Ring]) -> bool:
    if len(rings) != 1 or len(rings[0]) != 4:
        return False
    first, second, third, fourth = np.array(rings[0])
    # The diagonals of a rectangle are equally long and have the same middle.
    diagonal, other = third - first, fourth - second
    length = float(np.hypot(*diagonal))
    middles = np.abs(first + third - second - fourth).max() / 2
    return max(abs(length - float(np.hypot(*other))), float(middles)) <= _TOLERANCE * length


def _oriented(label: LabelledObject, width: int, height: int) -> Mapping[str, object]:
    corners = np.array(label.outlines[0])
    along, across = corners[1] - corners[0], corners[2] - corners[1]
    if along[0] * across[1] < along[1] * across[0]:
        # These corners are listed anticlockwise; the rotation belongs to a side with the other one to its right.
        along, across = across, along
    (cx, cy), angle = corners.mean(axis=0).tolist(), float(np.arctan2(along[1], along[0]))
    return {
        "label": label.label,
        "cx": cx / width,
        "cy": cy / height,
        "w": float(np.hypot(*along)) / width,
        "h": float(np.hypot(*across)) / height,
        "r": angle,
    }


def _contour(label: LabelledObject) -> list[list[Mapping[str, float]]]:
    if label.mask is not None:
        return [[{"x": x, "y": y} for x, y in ring.tolist()] for ring in contours_of_mask(decode_mask(label.mask))]
    return [[{"x": x - _HALF_PIXEL, "y": y - _HALF_PIXEL} for x, y in ring] for ring in label.rings or ()]
