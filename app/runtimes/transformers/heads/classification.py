"""Run classifiers of images and of texts. Scores are those of Hugging Face's pipelines."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.heads.text_scorer import TextScorer
from app.runtimes.transformers.images import Batch, ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from tasks.image_classification import Classification, ClassificationInput, ImageClassifier
from tasks.text_classification import ClassifiedText, TextClassifier


def load_image_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`.

    Raises:
        ModelError: if it has no processor.
    """
    images = ImagePreparation(load_image_processor(spec.source))

    def run(batch: Batch) -> list[Classification]:
        scores = probabilities(network(batch.tensors).logits, network.config)
        return [Classification(labels=spec.labels, scores=row) for row in scores]

    def classify(inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        return images.map([item.image for item in inputs], run)

    return classify


def load_text_classifier(spec: ModelSpec, network: Network) -> TextClassifier:
    """Return the classifier of `network`.

    Raises:
        ModelError: if it has no tokenizer.
    """
    texts = TextScorer(spec, network, lambda logits: probabilities(logits, network.config))

    def classify(inputs: Sequence[ClassifiedText], /) -> Sequence[Classification]:
        scored = texts([item.item for item in inputs])
        return [Classification(labels=spec.labels, scores=scores) for _, scores in scored]

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
