"""LitServe, with its own JSON."""

import base64
import sys
from typing import Any

import litserve

from tests.benchmarks.serving.others.pipeline import pipeline


class Classifier(litserve.LitAPI):
    """As LitServe's documentation has it."""

    def setup(self, device: str) -> None:
        """Open the graph."""
        del device
        self._pipeline = pipeline()

    def decode_request(self, request: dict[str, Any]) -> bytes:
        """Decode the image from base64."""
        return base64.b64decode(request["image"])

    def predict(self, image: bytes) -> list[dict[str, Any]]:
        """The best classes."""
        return self._pipeline.best(image)

    def encode_response(self, output: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer."""
        return {"predictions": output}


if __name__ == "__main__":
    server = litserve.LitServer(Classifier(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), generate_client_file=False, log_level="warning")
