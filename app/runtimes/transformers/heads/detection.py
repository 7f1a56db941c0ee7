"""Run object detectors of the DETR family, which need no non-maximum suppression."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.images import ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from app.settings.model import ModelError
from tasks.object_detection import DetectionInput, Detections, ObjectDetector

__all__ = ("detections", "load_detector")


def load_detector(spec: ModelSpec, network: Network) -> ObjectDetector:
    """Return the detector of `network`. The model's own processor decodes its outputs.

    Raises:
        ModelError: if there is no processor, or the processor cannot decode boxes.
    """
    processor = load_image_processor(spec.source)
    if not hasattr(processor, "post_process_object_detection"):
        raise ModelError(f"{spec.source.folder}: {type(processor).__name__} cannot decode boxes")
    images = ImagePreparation(processor)

    def detect(inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        by_index: dict[int, Detections] = {}
        for batch in images.batches([item.image for item in inputs]):
            outputs = network(batch.tensors)
            # Keep all scores above 0 here, because each request has its own threshold.
            decoded = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=list(batch.sizes))
            by_index.update(zip(batch.indices, (detections(image, spec.labels) for image in decoded), strict=True))
        return [by_index[index] for index in range(len(inputs))]

    return detect


def detections(decoded: Mapping[str, Any], labels: Sequence[str]) -> Detections:
    """Convert a processor's result for one image: scores (n,), labels (n,), boxes (n, 4) xyxy in pixels."""
    numbers: list[int] = decoded["labels"].tolist()
    return Detections(
        labels=[labels[number] for number in numbers],
        scores=decoded["scores"].float().cpu().numpy().astype(np.float32),
        boxes=decoded["boxes"].float().cpu().numpy().astype(np.float32).reshape(-1, 4),
    )
