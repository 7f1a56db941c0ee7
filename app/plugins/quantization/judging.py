"""Compare the answers of a quantised model with the original's, on images."""

import platform
from collections.abc import Callable, Sequence
from pathlib import Path

from app.clients.protocol import InferenceClientError, Records
from app.core.runtimes.onnxruntime.precision import QuantizationVerdict, is_accelerated
from app.core.settings.model import ModelError, ModelSource
from app.inputs import read_image
from app.plugins.evaluation.agreement import compare_answers
from app.plugins.evaluation.dataset import EvaluationError, Item
from app.plugins.evaluation.model import local_predictor
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.vision.image import decode_image

MIN_IMAGES = 50
MAX_CHANGED_LABELS, MAX_UNMATCHED_OBJECTS = 0.02, 0.05


class QuantizationJudge:
    """The answers of the original to at least `MIN_IMAGES` images. `on_progress` is called with 1 after each file.

    Raise ModelError if the model accepts fewer, finds nothing in them, or returns answers that cannot be compared.
    """

    def __init__(self, original: ModelSource, files: Sequence[Path], on_progress: Callable[[int], None]) -> None:
        self._expected: dict[str, Records] = {}
        self._items: list[Item] = []
        predict = _predictor(original)
        for file in files:
            on_progress(1)
            try:
                data = read_image(file, Limits())
                image = decode_image(data)
                item = Item(id=str(file), image=file, width=image.width, height=image.height)
                self._expected[item.id] = predict(item, data)
            except (InferenceError, InferenceClientError, ModelError):
                continue
            self._items.append(item)
        if len(self._items) < MIN_IMAGES:
            raise ModelError(
                f"Only {len(self._items)} of {len(files)} files are images that the model accepts. int8 changes "
                f"answers, and at least {MIN_IMAGES} images are needed to judge them"
            )
        if not any(self._expected.values()):
            raise ModelError(f"The model finds nothing in {len(self._items)} images, so int8 cannot be judged on them")

    def judge(self, quantized: ModelSource, max_changed: float | None) -> QuantizationVerdict:
        """Compare the answers. Raise ModelError with the figure if more than `max_changed` differ.

        By default, 2 % of the labels may differ, or 5 % of the objects have no partner of their label at IoU 0.5.
        """
        predict = _predictor(quantized)
        try:
            found = {item.id: predict(item, item.image.read_bytes()) for item in self._items}
            agreement = compare_answers(self._items, self._expected, found)
        except (EvaluationError, InferenceClientError) as error:
            raise ModelError(f"The answers of the int8 version cannot be judged: {error}") from None
        images = len(self._items)
        if agreement.matched is None:
            changed, limit = round((1 - agreement.labels) * images) / images, MAX_CHANGED_LABELS
            finding = f"{changed:.1%} of the labels of {images} images changed"
        else:
            total = sum(max(len(self._expected[item.id]), len(found[item.id])) for item in self._items)
            changed, limit = (total - agreement.matched) / total, MAX_UNMATCHED_OBJECTS
            finding = f"{changed:.1%} of {total} objects in {images} images have no partner at IoU 0.5"
        limit = limit if max_changed is None else max_changed
        if changed > limit:
            raise ModelError(
                f"int8 changes too many answers: {finding}, and the limit is {limit:.1%}. Calibrate with more images "
                "like those that the model receives, use bf16 with OpenVINO, or accept more with --max-changed"
            )
        acceleration = "with" if is_accelerated("int8") else "without"
        return QuantizationVerdict(
            images=images,
            changed=changed,
            finding=finding,
            processor=f"{platform.machine()} {acceleration} instructions for int8",
        )


def _predictor(source: ModelSource) -> Callable[[Item, bytes], Records]:
    try:
        return local_predictor(source, {}, Limits())
    except EvaluationError as error:
        raise ModelError(f"{source.folder} cannot be quantised, because int8 cannot be judged: {error}") from None
