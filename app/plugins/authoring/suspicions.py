"""Find likely mistakes in a model that can be served, for ``charioteer check``."""

import json
import math
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import cv2
import msgspec
import numpy as np

from app.core.cli.inputs import predict_records
from app.core.engine.models.servable import Servable
from app.core.settings.model import SETTINGS_FILE, ModelSource
from tasks.inference.error import InferenceError, truncate
from tasks.inference.limits import Limits
from tasks.inference.response import Record
from tasks.task import TaskType
from tasks.vision.image import decode_image

_PLACEHOLDER = re.compile(r"\W*|n/?a|none|unused|reserved", re.IGNORECASE)
"""Labels of unused class numbers, such as those that COCO leaves out."""
_MAX_SHOWN = 3
_SAME_SCORES = 1e-6
_MAX_FRACTION = 1.5
"""Pixels: boxes that are fractions may reach a little over the image."""


def duplicate_labels(labels: Sequence[str]) -> str:
    """Return a sentence about labels that several classes have, "" if there are none."""
    counts = Counter(label for label in labels if not _PLACEHOLDER.fullmatch(label))
    names = [repr(truncate(label, 40)) for label, count in counts.items() if count > 1]
    if not names:
        return ""
    further = f" and {len(names) - _MAX_SHOWN} more" if len(names) > _MAX_SHOWN else ""
    shown = ", ".join(names[:_MAX_SHOWN]) + further
    return f"Several classes have the same label: {shown}; answers do not distinguish them"


def duplicate_keys(source: ModelSource) -> str:
    """Return a sentence about keys that occur twice in an object of the settings, "" if there are none."""
    folders = (source.folder, source.root or source.folder)
    file = next((folder / SETTINGS_FILE for folder in folders if (folder / SETTINGS_FILE).is_file()), None)
    if file is None:
        return ""
    repeated: list[str] = []

    def to_dict(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        repeated.extend(key for key, count in Counter(key for key, _ in pairs).items() if count > 1)
        return dict(pairs)

    json.loads(file.read_bytes(), object_pairs_hook=to_dict)
    keys = ", ".join(f'"{truncate(key, 40)}"' for key in repeated[:_MAX_SHOWN])
    return f"{file} has {keys} more than once; only the last one has an effect" if repeated else ""


def unknown_parameters(source: ModelSource, servable: Servable) -> str:
    """Return a sentence about a default of a parameter that the task does not have, "" if there is none."""
    try:
        servable.check_parameters(source.settings.parameters)
    except InferenceError as error:
        return f"No effect in model-settings.json: {error.with_prefix('parameters')}"
    return ""


def suspicious_answer(
    source: ModelSource, servable: Servable, records: Sequence[Record], data: bytes | str, limits: Limits
) -> str:
    """Return a sentence about records that are probably wrong for an encoded image or a text, "" if they look right.

    Models of images may run a second time: classifiers on the negative of the image, all others without a threshold if
    they found nothing. Raise InferenceError when the model fails then.
    """
    task_type = servable.description.task_type
    is_classifier = task_type in (TaskType.IMAGE_CLASSIFICATION, TaskType.TEXT_CLASSIFICATION)
    repeated = duplicate_labels([str(getattr(record, "label", "")) for record in records]) if is_classifier else ""
    if repeated:
        return f"One answer has several records with one label. {repeated}"
    if isinstance(data, str) or servable.description.open_vocabulary:
        return ""
    if task_type.geometry is not None:
        everything = {"score_threshold": 0.0}
        return _suspicious_shapes(records or predict_records(servable, source.name, data, everything, limits), data)
    if task_type is not TaskType.IMAGE_CLASSIFICATION or not records:
        return ""
    negative = cv2.imencode(".png", 255 - decode_image(data).pixels[:, :, ::-1])[1].tobytes()
    scores, others = (
        {answer["label"]: answer["score"] for answer in map(msgspec.to_builtins, answers)}
        for answers in (records, predict_records(servable, source.name, negative, None, limits))
    )
    is_same = scores.keys() == others.keys() and all(
        abs(score - others[label]) <= _SAME_SCORES for label, score in scores.items()
    )
    advice = "the model may ignore its input, or apply softmax over the batch instead of the classes"
    return f"The scores are the same for the negative of the image: {advice}" if is_same else ""


def _suspicious_shapes(records: Sequence[Any], image: bytes) -> str:
    """Return a sentence about objects whose numbers are probably fractions of the image, or degrees."""
    height, width = decode_image(image).pixels.shape[:2]
    rings = [ring for record in records for ring in record.rings(width, height)]
    if rings and np.abs(np.concatenate(rings)).max() <= _MAX_FRACTION:
        advice = "multiply them by the width and height of the image in a Python class"
        return f"All objects lie within the first pixel, so their numbers are probably fractions; {advice}"
    if any(abs(getattr(record, "r", 0.0)) > 2 * math.pi for record in records):
        return "Boxes are rotated by more than a whole turn, so their angles are probably degrees; expected radians"
    return ""
