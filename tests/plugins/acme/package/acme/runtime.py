"""A runtime for text files: each line of ``en.acme`` is a class in English, and the first one is in every image."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from acme.settings import AcmeModelOptions
from charioteer.plugins import (
    Classification,
    ImageClassification,
    ModelMetadata,
    ModelSource,
    Servable,
    TaskType,
)


class AcmeRuntime:
    """Loads models of the company Acme."""

    name = "acme"
    priority = 60
    precisions = ("fp32",)

    def recognises(self, source: ModelSource, /) -> bool:
        return any(source.folder.glob("*.acme"))

    def inspect(self, source: ModelSource, /) -> ModelMetadata:
        language = source.of(AcmeModelOptions).acme_language
        labels = (source.folder / f"{language}.acme").read_text().split()
        return ModelMetadata(
            task_type=TaskType.IMAGE_CLASSIFICATION,
            platform="acme",
            layout="lines",
            labels=labels,
            inputs=(),
            outputs=(),
            facts=(),
        )

    def load(self, source: ModelSource, /) -> Servable:
        metadata = self.inspect(source)
        model = partial(answer, metadata.labels)
        return Servable(ImageClassification(), model, metadata, source.settings.parameters)


def answer(labels: Sequence[str], inputs: Sequence[Any], /) -> Sequence[Classification]:
    """Return the score 1 for the first class."""
    scores = np.eye(1, len(labels), dtype=np.float32)[0]
    return [Classification(labels=labels, scores=scores) for _ in inputs]


RUNTIMES = (AcmeRuntime(),)
