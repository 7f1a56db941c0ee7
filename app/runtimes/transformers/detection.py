"""Object detectors of the DETR kind: every query is a candidate, and none is a duplicate to be suppressed."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.images import ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from app.settings.model import ModelError
from tasks.object_detection import DetectionInput, Detections, ObjectDetector

__all__ = ("detections", "load_detector")


def load_detector(understood: Understood, network: Network) -> ObjectDetector:
    """The detector of `network`, its outputs read by its own processor.

    Raises:
        ModelError: when it has no processor, or one that reads no boxes.
    """
    processor = load_image_processor(understood.source)
    if not hasattr(processor, "post_process_object_detection"):
        raise ModelError(f"{understood.source.folder}: {type(processor).__name__} reads no boxes")
    images = ImagePreparation(processor)

    def detect(inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        found: dict[int, Detections] = {}
        for batch in images.batches([each.image for each in inputs]):
            outputs = network(batch.tensors)
            # A score over 0 is a query with a class: which of them are wanted, each request says for itself.
            read = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=list(batch.sizes))
            found.update(zip(batch.indices, (detections(each, understood.labels) for each in read), strict=True))
        return [found[index] for index in range(len(inputs))]

    return detect


def detections(read: Mapping[str, Any], labels: Sequence[str]) -> Detections:
    """What a processor read of one picture: scores (n,), labels (n,), boxes (n, 4) xyxy in pixels."""
    numbers: list[int] = read["labels"].tolist()
    return Detections(
        labels=[labels[number] for number in numbers],
        scores=read["scores"].float().cpu().numpy().astype(np.float32),
        boxes=read["boxes"].float().cpu().numpy().astype(np.float32).reshape(-1, 4),
    )
