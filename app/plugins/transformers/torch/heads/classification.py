"""Run classifiers of images. Scores equal Hugging Face's pipelines.

The requests of zero-shot classifiers, such as CLIP, name the classes.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.plugins.transformers.text.library import locked
from app.plugins.transformers.text.processor import load_image_processor
from app.plugins.transformers.text.tokenizer import (
    CANDIDATES_PATH,
    check_length,
    copy_tokenizer,
    load_tokenizer,
    max_text_tokens,
)
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.images import Batch, ImagePreparation
from app.plugins.transformers.torch.network import Network
from tasks.image_classification import Classification, ClassificationInput, ImageClassifier
from tasks.vision.image import Image

_HYPOTHESIS = "This is a photo of {}."
"""The prompt of a class, from Hugging Face's pipeline."""

_SIGLIP_TOKENS = 64
"""SigLIP was trained on texts padded to this length."""


def load_image_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`. Raise ModelError if it has no processor."""
    images = ImagePreparation(load_image_processor(spec.source))

    def run(batch: Batch) -> list[Classification]:
        scores = probabilities(network(batch.tensors).logits, network.config)
        return [Classification(labels=spec.description.labels, scores=row) for row in scores]

    return images.model(run)


def load_zero_shot_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`. Raise ModelError if it has no processor or no tokenizer."""
    images = ImagePreparation(load_image_processor(spec.source))
    tokenizer = load_tokenizer(spec.source)
    tokenize = locked(tokenizer)
    _, raw_tokenizer = copy_tokenizer(tokenizer, spec.source)
    max_tokens = max_text_tokens(tokenizer, network.config.get_text_config())
    siglip = "siglip" in network.config.model_type
    padding: dict[str, Any] = {"padding": True}
    if siglip:
        padding = {"padding": "max_length", "max_length": _SIGLIP_TOKENS, "truncation": True}

    def classify_one(image: Image, labels: Sequence[str]) -> Classification:
        prompts = [_HYPOTHESIS.format(label) for label in labels]
        for index, text in enumerate(() if siglip else prompts):
            check_length(len(raw_tokenizer.encode(text).ids), max_tokens, f"{CANDIDATES_PATH}[{index}]")
        logits = network({**tokenize(prompts, **padding), **images.prepare(image)}).logits_per_image[0].float()
        scores = logits.sigmoid() if siglip else logits.softmax(-1)
        return Classification(labels=labels, scores=scores.cpu().numpy().astype(np.float32))

    def classify(inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        return [classify_one(item.image, item.parameters.candidate_labels or ()) for item in inputs]

    return classify


def probabilities(logits: Any, config: Any) -> NDArray[np.float32]:
    """Convert (n, classes) logits to (n, classes) scores.

    Use the sigmoid for multi-label models and models with one class, and the softmax for others. Return the outputs of
    a regression unchanged.
    """
    problem_type = getattr(config, "problem_type", None)
    numbers = logits.float()
    if problem_type == "regression":
        return numbers.cpu().numpy()
    if problem_type == "multi_label_classification" or numbers.shape[-1] == 1:
        return numbers.sigmoid().cpu().numpy()
    return numbers.softmax(-1).cpu().numpy()
