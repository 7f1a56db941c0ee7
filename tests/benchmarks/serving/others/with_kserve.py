"""KServe's Python SDK, with a custom model."""

import base64
import json
import sys

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from kserve.utils.utils import generate_uuid

from tests.benchmarks.serving.others.pipeline import pipeline


class VisionModel(Model):
    """A custom model as KServe's documentation has it."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.load()

    def load(self) -> bool:
        self._pipeline = pipeline()
        self.ready = True
        return True

    def predict(self, payload: InferRequest, headers: dict[str, str] | None = None) -> InferResponse:
        del headers
        found = self._pipeline.answer(base64.b64decode(payload.inputs[0].data[0]))
        output = InferOutput("predictions", [1], "BYTES", data=[json.dumps(found)])
        return InferResponse(response_id=generate_uuid(), model_name=self.name, infer_outputs=[output])


if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), enable_grpc=False, workers=1).start([VisionModel("model")])
