"""Run object detectors of the DETR family, which need no non-maximum suppression.

The requests of zero-shot detectors, OWL-ViT and Grounding DINO, name the classes.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import PIL.Image

from app.core.settings.model import ModelError
from app.plugins.transformers.text.library import locked
from app.plugins.transformers.text.processor import load_image_processor, load_processor
from app.plugins.transformers.text.tokenizer import CANDIDATES_PATH, Tokenizer, check_length, copy_tokenizer
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.framework import load_torch
from app.plugins.transformers.torch.images import Items, Tensors, batched_model
from app.plugins.transformers.torch.network import Network
from tasks.inference.error import invalid
from tasks.object_detection import DetectionInput, Detections, ObjectDetector
from tasks.vision.filtering import xywh_to_xyxy
from tasks.vision.image import Image


def load_detector(spec: ModelSpec, network: Network) -> ObjectDetector:
    """Return the detector of `network`. The model's own processor decodes its outputs.

    Raise ModelError if there is no processor, or the processor cannot decode boxes.
    """
    processor = load_image_processor(spec.source)
    if not hasattr(processor, "post_process_object_detection"):
        raise ModelError(f"{spec.source.folder}: {type(processor).__name__} cannot decode boxes")

    def run(items: Items, tensors: Tensors) -> list[Detections]:
        outputs = network(tensors)
        # Keep all scores above 0 here, because each request has its own threshold.
        sizes = [item.image.pixels.shape[:2] for item in items]
        decoded = processor.post_process_object_detection(outputs, threshold=0.0, target_sizes=sizes)
        return [
            _detections([spec.description.labels[int(number)] for number in found["labels"].tolist()], found)
            for found in decoded
        ]

    return batched_model(processor, run)


def load_zero_shot_detector(spec: ModelSpec, network: Network) -> ObjectDetector:
    """Return the detector of `network`.

    Raise ModelError if it has no processor, or the processor cannot decode boxes.
    """
    source, model_type = spec.source, str(network.config.model_type)
    processor = load_processor(source, model_type)
    decode = getattr(processor, "post_process_grounded_object_detection", None)
    if decode is None:
        raise ModelError(f"{source.folder}: {type(processor).__name__} cannot decode boxes of candidate labels")
    tokenizer = copy_tokenizer(processor.tokenizer, source)
    process = locked(processor)
    detect_one = partial(_detect_by_queries, network, process, decode)
    if "grounding" in model_type:
        detect_one = partial(_detect_by_phrases, network, process, tokenizer)

    def detect(inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        with load_torch().inference_mode():
            return [detect_one(item.image, item.parameters.candidate_labels or ()) for item in inputs]

    return detect


def _detect_by_queries(
    network: Network, process: Callable[..., Any], decode: Any, image: Image, labels: Sequence[str]
) -> Detections:
    """Detect with OWL-ViT and similar models, which encode each class as a separate text."""
    inputs = process(
        images=PIL.Image.fromarray(image.pixels), text=[list(labels)], padding="max_length", truncation=True
    )
    (decoded,) = decode(
        network(inputs), threshold=0.0, target_sizes=[(image.height, image.width)], text_labels=[list(labels)]
    )
    return _detections([str(label) for label in decoded["text_labels"]], decoded)


def _detect_by_phrases(
    network: Network, process: Callable[..., Any], tokenizer: Tokenizer, image: Image, labels: Sequence[str]
) -> Detections:
    """Detect with Grounding DINO, which encodes all classes as one text and scores each token for each box.

    A box gets the class that contains its best token. The library's own post-processing returns all tokens above a
    threshold instead, which may not form a class.
    """
    text, spans = _sentence(labels)
    tokens = tokenizer.spans(text)
    check_length(len(tokens), network.config.max_text_len, CANDIDATES_PATH)
    positions = [
        [position for position, (start, end) in enumerate(tokens) if start < last and end > first]
        for first, last in spans
    ]
    if not all(positions):
        path = f"{CANDIDATES_PATH}[{positions.index([])}]"
        raise invalid("Expected a name that the model's tokenizer can encode, got none", path)
    outputs = network(process(images=PIL.Image.fromarray(image.pixels), text=text))
    scores = outputs.logits[0].float().sigmoid()
    class_scores = load_torch().stack([scores[:, tokens_of].amax(dim=1) for tokens_of in positions], dim=1)
    best, classes = class_scores.max(dim=1)
    boxes = xywh_to_xyxy(outputs.pred_boxes[0].float().cpu().numpy())
    sides = np.array([image.width, image.height] * 2, np.float32)
    numbers: list[int] = classes.tolist()
    return Detections(
        labels=[labels[number] for number in numbers],
        scores=best.cpu().numpy().astype(np.float32),
        boxes=boxes * sides,
    )


def _sentence(labels: Sequence[str]) -> tuple[str, list[tuple[int, int]]]:
    """Join the classes in lower case, each followed by a full stop. Return the text and the span of each class."""
    text = ""
    spans: list[tuple[int, int]] = []
    for label in labels:
        name = label.strip().lower().rstrip(".") or "."
        spans.append((len(text), len(text) + len(name)))
        text += f"{name}. "
    return text.rstrip(), spans


def _detections(labels: Sequence[str], decoded: Mapping[str, Any]) -> Detections:
    """Convert a processor's result for one image: scores (n,), boxes (n, 4) xyxy in pixels."""
    scores, boxes = (decoded[name].float().cpu().numpy() for name in ("scores", "boxes"))
    return Detections(labels=labels, scores=scores, boxes=boxes.reshape(-1, 4))
