"""LitServe, with its own JSON."""

import base64
import sys
from typing import Any

import litserve

from tests.benchmarks.serving.others.pipeline import pipeline


class VisionModel(litserve.LitAPI):
    """As LitServe's documentation has it."""

    def setup(self, device: str) -> None:
        del device
        self._pipeline = pipeline()

    def decode_request(self, request: dict[str, Any]) -> bytes:
        return base64.b64decode(request["image"])

    def predict(self, image: bytes) -> list[dict[str, Any]]:
        return self._pipeline.answer(image)

    def encode_response(self, output: list[dict[str, Any]]) -> dict[str, Any]:
        return {"predictions": output}


if __name__ == "__main__":
    server = litserve.LitServer(VisionModel(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
