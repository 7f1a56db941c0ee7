"""MLServer, with a custom runtime."""

import base64
import json

from mlserver import MLModel
from mlserver.types import InferenceRequest, InferenceResponse, ResponseOutput

from tests.benchmarks.serving.others.pipeline import pipeline


class VisionModel(MLModel):
    """A custom runtime as MLServer's documentation has it."""

    async def load(self) -> bool:
        self._pipeline = pipeline()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        data = payload.inputs[0].data[0]
        found = self._pipeline.answer(base64.b64decode(data))
        output = ResponseOutput(name="predictions", shape=[1], datatype="BYTES", data=[json.dumps(found)])
        return InferenceResponse(model_name=self.name, outputs=[output])
