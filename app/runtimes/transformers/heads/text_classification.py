"""Run text classifiers."""

from collections.abc import Sequence

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.heads.classes import probabilities
from app.runtimes.transformers.heads.text_scorer import TextScorer
from app.runtimes.transformers.network import Network
from tasks.image_classification import Classification
from tasks.text_classification import ClassifiedText, TextClassifier

__all__ = ("load_text_classifier",)


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
