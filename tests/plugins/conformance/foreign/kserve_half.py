"""Serve x / 2 + 2 with KServe's own server: ``python kserve_half.py HTTP_PORT GRPC_PORT``."""

import importlib
import sys
from typing import Any

import numpy as np

kserve: Any = importlib.import_module("kserve")


class Half(kserve.Model):
    """A model written as in KServe's documentation."""

    def load(self) -> bool:
        self.ready = True
        return self.ready

    async def get_input_types(self) -> list[dict[str, object]]:
        return [{"name": "x", "datatype": "FP32", "shape": [-1]}]

    async def get_output_types(self) -> list[dict[str, object]]:
        return [{"name": "y", "datatype": "FP32", "shape": [-1]}]

    async def predict(self, payload: Any, headers: Any = None, response_headers: Any = None) -> Any:
        if not isinstance(payload, kserve.InferRequest):
            return {"predictions": [number / 2 + 2 for number in payload.get("instances") or payload["inputs"]]}
        numbers = (payload.inputs[0].as_numpy() / 2 + 2).astype(np.float32)
        output = kserve.InferOutput(name="y", shape=list(numbers.shape), datatype="FP32")
        output.set_data_from_numpy(numbers, binary_data=payload.use_binary_outputs)
        return kserve.InferResponse(
            response_id=payload.id or "made up",
            model_name=self.name,
            infer_outputs=[output],
            use_binary_outputs=payload.use_binary_outputs,
            requested_outputs=payload.request_outputs,
        )


if __name__ == "__main__":
    http_port, grpc_port = map(int, sys.argv[1:])
    half = Half("half")
    half.load()
    kserve.ModelServer(http_port=http_port, grpc_port=grpc_port, workers=1).start([half])
