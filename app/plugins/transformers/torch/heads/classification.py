"""Run classifiers of images. Scores equal Hugging Face's pipelines.

The requests of zero-shot classifiers, such as CLIP, name the classes.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.plugins.transformers.text.library import locked
from app.plugins.transformers.text.processor import load_image_processor
from app.plugins.transformers.text.tokenizer import CANDIDATES_PATH, check_length, copy_tokenizer, load_tokenizer
from app.plugins.transformers.torch.architecture import ModelSpec
from app.plugins.transformers.torch.images import Items, Tensors, batched_model, image_tensors
from app.plugins.transformers.torch.network import Network
from tasks.image_classification import Classification, ClassificationInput, ImageClassifier
from tasks.vision.image import Image

_HYPOTHESIS = "This is a photo of {}."
"""The prompt of a class, from Hugging Face's pipeline."""

_SIGLIP_TOKENS = 64
"""SigLIP was trained on texts padded to this length."""


def load_image_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`. Raise ModelError if it has no processor."""

    def run(_: Items, tensors: Tensors) -> list[Classification]:
        scores = probabilities(network(tensors).logits, network.config)
        return [Classification(labels=spec.description.labels, scores=row) for row in scores]

    return batched_model(load_image_processor(spec.source), run)


def load_zero_shot_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`. Raise ModelError if it has no processor or no tokenizer."""
    prepare = image_tensors(load_image_processor(spec.source))
    tokenizer = load_tokenizer(spec.source)
    tokenize = locked(tokenizer)
    own_tokenizer = copy_tokenizer(tokenizer, spec.source)
    positions = getattr(network.config.get_text_config(), "max_position_embeddings", None)
    max_tokens = min(tokenizer.model_max_length, positions or math.inf)
    siglip = "siglip" in network.config.model_type
    padding: dict[str, Any] = {"padding": True}
    if siglip:
        padding = {"padding": "max_length", "max_length": _SIGLIP_TOKENS, "truncation": True}

    def classify_one(image: Image, labels: Sequence[str]) -> Classification:
        prompts = [_HYPOTHESIS.format(label) for label in labels]
        for index, text in enumerate(() if siglip else prompts):
            check_length(len(own_tokenizer.spans(text)), max_tokens, f"{CANDIDATES_PATH}[{index}]")
        logits = network({**tokenize(prompts, **padding), **prepare(image)}).logits_per_image[0].float()
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
