"""A model for MLServer that computes x / 2 + 2; ``model-settings.json`` beside it names it."""

import importlib
from typing import Any

import numpy as np

mlserver: Any = importlib.import_module("mlserver")
codecs: Any = importlib.import_module("mlserver.codecs")
types: Any = importlib.import_module("mlserver.types")


class Half(mlserver.MLModel):
    """A model written as in MLServer's documentation."""

    async def load(self) -> bool:
        return True

    async def predict(self, payload: Any) -> Any:
        numbers = codecs.NumpyCodec.decode_input(payload.inputs[0]).astype(np.float32)
        output = codecs.NumpyCodec.encode_output("y", numbers / 2 + 2)
        output.shape = list(numbers.shape)  # the codec turns a row into a column
        return types.InferenceResponse(
            id=payload.id, model_name=self.name, model_version=self.version, outputs=[output]
        )
