"""BentoML, with a service of one worker."""

import base64
from typing import Any

import bentoml

from tests.benchmarks.serving.others.pipeline import pipeline


@bentoml.service(workers=1)
class VisionModel:
    """As BentoML's documentation has it."""

    def __init__(self) -> None:
        self._pipeline = pipeline()

    @bentoml.api
    def classify(self, image: str) -> list[dict[str, Any]]:
        return self._pipeline.answer(base64.b64decode(image))
