"""Run image classifiers."""

from collections.abc import Sequence

from app.runtimes.transformers.architecture import Understood
from app.runtimes.transformers.classes import classifications
from app.runtimes.transformers.images import ImagePreparation, load_image_processor
from app.runtimes.transformers.network import Network
from tasks.image_classification import Classification, ClassificationInput, ImageClassifier

__all__ = ("load_image_classifier",)


def load_image_classifier(understood: Understood, network: Network) -> ImageClassifier:
    """Return the classifier of `network`.

    Raises:
        ModelError: if it has no processor.
    """
    images = ImagePreparation(load_image_processor(understood.source))

    def classify(inputs: Sequence[ClassificationInput], /) -> Sequence[Classification]:
        found: dict[int, Classification] = {}
        for batch in images.batches([item.image for item in inputs]):
            logits = network(batch.tensors).logits
            found.update(zip(batch.indices, classifications(logits, network.config, understood.labels), strict=True))
        return [found[index] for index in range(len(inputs))]

    return classify
