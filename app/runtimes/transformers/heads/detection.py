"""Run object detectors of the DETR family, which need no non-maximum suppression."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.images import Batch, ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from app.settings.model import ModelError
from tasks.object_detection import DetectionInput, Detections, ObjectDetector


def load_detector(spec: ModelSpec, network: Network) -> ObjectDetector:
    """Return the detector of `network`. The model's own processor decodes its outputs.

    Raises:
        ModelError: if there is no processor, or the processor cannot decode boxes.
    """
    processor = load_image_processor(spec.source)
    if not hasattr(processor, "post_process_object_detection"):
        raise ModelError(f"{spec.source.folder}: {type(processor).__name__} cannot decode boxes")
    images = ImagePreparation(processor)

    def named(decoded: Mapping[str, Any]) -> Detections:
        numbers: list[int] = decoded["labels"].tolist()
        return detections([spec.labels[number] for number in numbers], decoded)

    def run(batch: Batch) -> list[Detections]:
        outputs = network(batch.tensors)
        # Keep all scores above 0 here, because each request has its own threshold.
        decoded = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=list(batch.sizes))
        return list(map(named, decoded))

    def detect(inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        return images.map([item.image for item in inputs], run)

    return detect


def detections(labels: Sequence[str], decoded: Mapping[str, Any]) -> Detections:
    """Convert a processor's result for one image: scores (n,), boxes (n, 4) xyxy in pixels."""
    scores, boxes = (decoded[name].float().cpu().numpy() for name in ("scores", "boxes"))
    return Detections(labels=labels, scores=scores, boxes=boxes.reshape(-1, 4))
