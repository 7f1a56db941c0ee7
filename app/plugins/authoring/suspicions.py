"""Find likely mistakes in a model that can be served, for ``charioteer check``."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import cv2
import msgspec

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
    source: ModelSource, servable: Servable, records: Sequence[Record], image: bytes, limits: Limits
) -> str:
    """Return a sentence about records that are probably wrong for an encoded image, "" if they look right.

    Classifiers run a second time, on the negative of the image. Raise InferenceError when the model fails on the
    negative.
    """
    answers: list[dict[str, Any]] = [msgspec.to_builtins(record) for record in records]
    description = servable.description
    if not answers:
        return ""
    if description.task_type is TaskType.OBJECT_DETECTION and description.platform == "python":
        sides = [abs(answer[name]) for answer in answers for name in ("xmin", "ymin", "xmax", "ymax")]
        advice = "the class should multiply them by the width and height of the image"
        suspicion = f"All boxes lie within the first pixel, so they are probably fractions; {advice}"
        return suspicion if max(sides) <= 1 else ""
    if description.task_type is not TaskType.IMAGE_CLASSIFICATION or description.open_vocabulary:
        return ""
    scores = {answer["label"]: answer["score"] for answer in answers}
    others = {
        answer["label"]: answer["score"]
        for answer in map(msgspec.to_builtins, predict_records(servable, source.name, _negative(image), None, limits))
    }
    is_same = scores.keys() == others.keys() and all(
        abs(score - others[label]) <= _SAME_SCORES for label, score in scores.items()
    )
    advice = "the model may ignore its input, or apply softmax over the batch instead of the classes"
    return f"The scores are the same for the negative of the image: {advice}" if is_same else ""


def _negative(image: bytes) -> bytes:
    pixels = 255 - decode_image(image).pixels
    return cv2.imencode(".png", pixels[:, :, ::-1])[1].tobytes()
