"""Run zero-shot models, whose requests name the classes: CLIP for images, OWL-ViT and Grounding DINO for objects."""

import threading
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import PIL.Image

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.heads.detection import detections
from app.runtimes.transformers.images import ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from app.runtimes.transformers.processing import load_processor
from app.runtimes.transformers.tokenizing import check_length, copy_tokenizer, load_tokenizer, max_text_tokens
from app.settings.model import ModelError
from tasks.image_classification import Classification, ClassificationInput, ImageClassifier
from tasks.inference.error import invalid
from tasks.object_detection import DetectionInput, Detections, ObjectDetector
from tasks.vision.image import Image

_HYPOTHESIS = "This is a photo of {}."
"""The prompt of a class, from Hugging Face's pipeline."""

_LABELS_PATH = "parameters.candidate_labels"

_SIGLIP_TOKENS = 64
"""SigLIP was trained on texts padded to this length."""


def load_zero_shot_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`.

    Raises:
        ModelError: if it has no processor or no tokenizer.
    """
    images = ImagePreparation(load_image_processor(spec.source))
    tokenizer, lock = load_tokenizer(spec.source), threading.Lock()
    _, raw_tokenizer = copy_tokenizer(tokenizer, spec.source)
    max_tokens = max_text_tokens(tokenizer, network.config.get_text_config())
    siglip = "siglip" in network.config.model_type
    padding: dict[str, Any] = {"padding": True}
    if siglip:
        padding = {"padding": "max_length", "max_length": _SIGLIP_TOKENS, "truncation": True}

    def classify_one(image: Image, labels: Sequence[str]) -> Classification:
        prompts = [_HYPOTHESIS.format(label) for label in labels]
        for index, text in enumerate(() if siglip else prompts):
            check_length(len(raw_tokenizer.encode(text).ids), max_tokens, f"{_LABELS_PATH}[{index}]")
        with lock:
            texts = tokenizer(prompts, return_tensors="pt", **padding)
        logits = network({**texts, **images.prepare(image)}).logits_per_image[0].float()
        scores = logits.sigmoid() if siglip else logits.softmax(-1)
        return Classification(labels=labels, scores=scores.cpu().numpy().astype(np.float32))

    def classify(inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        return [classify_one(item.image, item.parameters.candidate_labels or ()) for item in inputs]

    return classify


def load_zero_shot_detector(spec: ModelSpec, network: Network) -> ObjectDetector:
    """Return the detector of `network`.

    Raises:
        ModelError: if it has no processor, or the processor cannot decode boxes.
    """
    source, model_type = spec.source, str(network.config.model_type)
    processor = load_processor(source, model_type)
    if not hasattr(processor, "post_process_grounded_object_detection"):
        raise ModelError(f"{source.folder}: {type(processor).__name__} cannot decode boxes of candidate labels")
    detect_one = _detect_by_phrases if "grounding" in model_type else _detect_by_queries
    _, raw_tokenizer = copy_tokenizer(processor.tokenizer, source)
    parts = _DetectorParts(network, processor, raw_tokenizer, threading.Lock())

    def detect(inputs: Sequence[DetectionInput], /) -> Sequence[Detections]:
        with framework().torch.inference_mode():
            return [detect_one(parts, item.image, item.parameters.candidate_labels or ()) for item in inputs]

    return detect


class _DetectorParts(msgspec.Struct, frozen=True, eq=False):
    """The parts of a detector. `lock` protects the processor; `tokenizer` has no state."""

    network: Network
    processor: Any
    tokenizer: Any
    lock: threading.Lock

    def inputs(self, image: Image, text: Any, **more: Any) -> dict[str, Any]:
        with self.lock:
            processed = self.processor(images=PIL.Image.fromarray(image.pixels), text=text, return_tensors="pt", **more)
        return {name: value for name, value in processed.items() if framework().torch.is_tensor(value)}


def _detect_by_queries(parts: _DetectorParts, image: Image, labels: Sequence[str]) -> Detections:
    """Detect with OWL-ViT and similar models, which encode each class as a separate text."""
    outputs = parts.network(parts.inputs(image, [list(labels)], padding="max_length", truncation=True))
    decoded = parts.processor.post_process_grounded_object_detection(
        outputs, threshold=0.0, target_sizes=[(image.height, image.width)], text_labels=[list(labels)]
    )[0]
    return detections([str(label) for label in decoded["text_labels"]], decoded)


def _detect_by_phrases(parts: _DetectorParts, image: Image, labels: Sequence[str]) -> Detections:
    """Detect with Grounding DINO, which encodes all classes as one text and scores each token for each box.

    A box gets the class that contains its best token. The library's own post-processing returns all tokens above a
    threshold instead, which may not form a class.
    """
    text, spans = _sentence(labels)
    tokens = parts.tokenizer.encode(text)
    check_length(len(tokens.ids), parts.network.config.max_text_len, _LABELS_PATH)
    positions = [
        [position for position, (start, end) in enumerate(tokens.offsets) if start < last and end > first]
        for first, last in spans
    ]
    if not all(positions):
        path = f"{_LABELS_PATH}[{positions.index([])}]"
        raise invalid("Expected a name that the model's tokenizer can encode, got none", path)
    outputs = parts.network(parts.inputs(image, text))
    scores = outputs.logits[0].float().sigmoid()
    class_scores = framework().torch.stack([scores[:, tokens_of].amax(dim=1) for tokens_of in positions], dim=1)
    best, classes = class_scores.max(dim=1)
    boxes = outputs.pred_boxes[0].float().cpu().numpy()
    half = boxes[:, 2:] / 2
    sides = np.array([image.width, image.height] * 2, np.float32)
    numbers: list[int] = classes.tolist()
    return Detections(
        labels=[labels[number] for number in numbers],
        scores=best.cpu().numpy().astype(np.float32),
        boxes=(np.concatenate([boxes[:, :2] - half, boxes[:, :2] + half], axis=1) * sides).astype(np.float32),
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
