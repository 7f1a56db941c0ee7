"""Measure the minimum cost of a classification request: the same work in one thread, without a server.

Parse, base64, decode, letterbox, run, top five, encode. It uses only libraries (msgspec, pybase64, OpenCV, NumPy, ONNX
Runtime), so that the baseline has no code of Charioteer.
"""

import sys
import time
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import onnxruntime
import pybase64

from app.server.process_setup import configure_process
from tests.benchmarks.serving.shape import LABELS, SIDE, TOP_K

__all__ = ("Chain",)


class Input(msgspec.Struct):
    """One input of a request."""

    data: msgspec.Raw


class Body(msgspec.Struct):
    """A request."""

    inputs: list[Input]


class Chain:
    """Answers the body of a request of chariot-v2-kserve."""

    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.table = (np.arange(256) / 255).astype(np.float32)

    def __call__(self, body: bytes) -> bytes:
        """Answer one request."""
        raw = memoryview(msgspec.json.decode(body, type=Body).inputs[0].data)
        classes = self.best(pybase64.b64decode(raw[2:-2], validate=True))
        output = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [classes]}
        return msgspec.json.encode({"id": "1", "outputs": [output]})

    def best(self, image: bytes) -> list[dict[str, Any]]:
        """Return the best classes of an encoded image."""
        pixels: Any = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR_RGB)
        height, width = pixels.shape[:2]
        scale = min(SIDE / width, SIDE / height)
        new_width, new_height = round(width * scale), round(height * scale)
        left, top = (SIDE - new_width) // 2, (SIDE - new_height) // 2
        small = cv2.resize(pixels, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
        batch = np.zeros((1, 3, SIDE, SIDE), np.float32)
        for channel in range(3):
            target = batch[0, channel, top : top + new_height, left : left + new_width]
            cv2.LUT(cv2.extractChannel(small, channel), self.table, target)
        scores = self.session.run(None, {"input": batch})[0][0]
        best = np.argpartition(scores, -TOP_K)[-TOP_K:]
        best = best[np.argsort(-scores[best])]
        return [
            {"label": LABELS[index], "score": score}
            for index, score in zip(best.tolist(), scores[best].tolist(), strict=True)
        ]


def main(model: str, body: str, requests: str) -> None:
    """Answer the request in the file `body` repeatedly, and print the CPU milliseconds for each."""
    configure_process()
    chain, content, count = Chain(Path(model)), Path(body).read_bytes(), int(requests)
    for _ in range(20):
        chain(content)
    started = time.process_time()
    for _ in range(count):
        chain(content)
    print((time.process_time() - started) / count * 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
