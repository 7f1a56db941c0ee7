"""The least that a detection request can cost: the same work in one thread, in one process, without a server.

Written against the libraries alone (msgspec, pybase64, OpenCV, NumPy, ONNX Runtime), so that nothing of Charioteer's
own is hidden in what it is measured against.
"""

import ast
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
import onnxruntime
import pybase64

from app.server.tuning import tune_process


class Input(msgspec.Struct):
    """One input of a request."""

    data: msgspec.Raw


class Body(msgspec.Struct):
    """A request."""

    inputs: list[Input]


class Detection(msgspec.Struct):
    """One item of an answer."""

    label: str
    score: float
    xmin: float
    ymin: float
    xmax: float
    ymax: float


class Chain:
    """Parse, base64, decode, letterbox, run, NMS, encode."""

    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        metadata = self.session.get_modelmeta().custom_metadata_map
        self.side = int(metadata["imgsz"].strip("[]").split(",")[0])
        self.labels: dict[int, str] = ast.literal_eval(metadata["names"])

    def __call__(self, body: bytes) -> bytes:
        """Answer one request."""
        raw = memoryview(msgspec.json.decode(body, type=Body).inputs[0].data)
        data = pybase64.b64decode(raw[2:-2], validate=True)
        pixels: Any = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)
        height, width = pixels.shape[:2]
        scale = min(self.side / width, self.side / height)
        new_width, new_height = round(width * scale), round(height * scale)
        left, top = round((self.side - new_width) / 2 - 0.1), round((self.side - new_height) / 2 - 0.1)
        canvas = np.full((self.side, self.side, 3), 114, np.uint8)
        canvas[top : top + new_height, left : left + new_width] = cv2.resize(pixels, (new_width, new_height))
        blob = cv2.dnn.blobFromImage(canvas, 1 / 255)
        rows = self.session.run(None, {"images": blob})[0][0]
        scores = rows[4:].max(axis=0)
        kept = np.flatnonzero(scores >= 0.5)
        centres, sizes, scores = rows[:2, kept].T, rows[2:4, kept].T, scores[kept]
        classes = rows[4:, kept].argmax(axis=0)
        corners = centres - sizes / 2
        best = cv2.dnn.NMSBoxes(np.hstack([corners, sizes]).astype(float), scores, 0.5, 0.45)
        found: list[Detection] = []
        for index in np.asarray(best, int):
            x, y = (corners[index] - (left, top)) / scale
            w, h = sizes[index] / scale
            found.append(Detection(self.labels[classes[index]], float(scores[index]), x, y, x + w, y + h))
        answer = {"id": "1", "outputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [found]}]}
        return msgspec.json.encode(answer, enc_hook=float)


def main(model: str, body: str, requests: str) -> None:
    """Answer the request in the file `body` so many times, and print the CPU milliseconds that one takes."""
    tune_process()
    chain, content, count = Chain(Path(model)), Path(body).read_bytes(), int(requests)
    for _ in range(20):
        chain(content)
    started = time.process_time()
    for _ in range(count):
        chain(content)
    print((time.process_time() - started) / count * 1000)


if __name__ == "__main__":
    main(*sys.argv[1:])
