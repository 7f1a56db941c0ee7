"""Ray Serve, with a deployment of one replica that reads the HTTP request."""

import base64
import signal
import sys
from typing import Any

import ray
from ray import serve
from starlette.requests import Request

from tests.benchmarks.serving.others.pipeline import pipeline


@serve.deployment
class VisionModel:
    """As Ray Serve's documentation has it."""

    def __init__(self) -> None:
        self._pipeline = pipeline()

    async def __call__(self, request: Request) -> dict[str, Any]:
        payload = await request.json()
        return {"predictions": self._pipeline.answer(base64.b64decode(payload["image"]))}


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    ray.init(include_dashboard=False, object_store_memory=100_000_000)
    serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
    serve.run(VisionModel.bind(), blocking=True)
