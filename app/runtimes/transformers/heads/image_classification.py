"""Run image classifiers."""

from collections.abc import Sequence

from app.runtimes.transformers.architecture import ModelSpec
from app.runtimes.transformers.heads.classes import classifications
from app.runtimes.transformers.images import ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from tasks.image_classification import Classification, ClassificationInput, ImageClassifier

__all__ = ("load_image_classifier",)


def load_image_classifier(spec: ModelSpec, network: Network) -> ImageClassifier:
    """Return the classifier of `network`.

    Raises:
        ModelError: if it has no processor.
    """
    images = ImagePreparation(load_image_processor(spec.source))

    def classify(inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        by_index: dict[int, Classification] = {}
        for batch in images.batches([item.image for item in inputs]):
            logits = network(batch.tensors).logits
            by_index.update(zip(batch.indices, classifications(logits, network.config, spec.labels), strict=True))
        return [by_index[index] for index in range(len(inputs))]

    return classify
