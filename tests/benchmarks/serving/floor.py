"""Measure the minimum cost of a request: the same work in one thread, without a server.

Parse, base64, decode, letterbox, run, read the outputs, encode. It uses only libraries (msgspec, pybase64, OpenCV,
NumPy, ONNX Runtime), so that the baseline has no code of Charioteer.
"""

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import cv2
import msgspec
import numpy as np
import onnxruntime
import pybase64
from numpy.typing import NDArray

from app.core.server.process_setup import configure_process
from tests.benchmarks.serving.shape import IOU_THRESHOLD, LABELS, SCORE_THRESHOLD, TOP_K


class Input(msgspec.Struct):
    data: msgspec.Raw


class Body(msgspec.Struct):
    inputs: list[Input]


class Frame(NamedTuple):
    """The position of an image in the model's input: its own size and the scale and offset in the input, in pixels."""

    width: int
    height: int
    scale: float
    left: int
    top: int


def open_session(model: Path) -> tuple[Any, str, int]:
    """Return a session of one thread, the name of its input, and the side of its input."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    (spec,) = session.get_inputs()
    return session, spec.name, spec.shape[-1]


class Chain:
    """Answers the body of a request of chariot-v2-kserve.

    A model with one output of two dimensions is a classifier, of three dimensions a YOLO detector, and with two outputs
    a YOLO segmenter.
    """

    def __init__(self, model: Path) -> None:
        self.session, self.input, self.side = open_session(model)
        self.table = (np.arange(256) / 255).astype(np.float32)
        outputs = self.session.get_outputs()
        self.read = best_classes if len(outputs[0].shape) == 2 else segments if len(outputs) == 2 else boxes

    def __call__(self, body: bytes) -> bytes:
        raw = memoryview(msgspec.json.decode(body, type=Body).inputs[0].data)
        records = self.answer(pybase64.b64decode(raw[2:-2], validate=True))
        output = {"name": "image", "shape": [1], "datatype": "BYTES", "data": [records]}
        return msgspec.json.encode({"id": "1", "outputs": [output]})

    def answer(self, image: bytes) -> list[dict[str, Any]]:
        pixels: Any = cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR_RGB)
        side, (height, width) = self.side, pixels.shape[:2]
        scale = min(side / width, side / height)
        new_width, new_height = round(width * scale), round(height * scale)
        left, top = (side - new_width) // 2, (side - new_height) // 2
        small = cv2.resize(pixels, (new_width, new_height), interpolation=cv2.INTER_LINEAR)
        batch = np.zeros((1, 3, side, side), np.float32)
        for channel in range(3):
            target = batch[0, channel, top : top + new_height, left : left + new_width]
            cv2.LUT(cv2.extractChannel(small, channel), self.table, target)
        outputs = [output[0] for output in self.session.run(None, {self.input: batch})]
        return self.read(outputs, Frame(width, height, scale, left, top))


def best_classes(outputs: Sequence[NDArray[Any]], _: Frame) -> list[dict[str, Any]]:
    (scores,) = outputs
    best = np.argpartition(scores, -TOP_K)[-TOP_K:]
    best = best[np.argsort(-scores[best])]
    return [
        {"label": LABELS[index], "score": score}
        for index, score in zip(best.tolist(), scores[best].tolist(), strict=True)
    ]


def boxes(outputs: Sequence[NDArray[Any]], frame: Frame) -> list[dict[str, Any]]:
    return [record for record, _ in _objects(outputs[0], len(outputs[0]) - 4, frame)]


def segments(outputs: Sequence[NDArray[Any]], frame: Frame) -> list[dict[str, Any]]:
    """Return the objects of a YOLO segmenter with their contours."""
    columns, planes = outputs
    ratio = planes.shape[2] * frame.scale / (frame.width * frame.scale + 2 * frame.left)
    records: list[dict[str, Any]] = []
    for record, coefficients in _objects(columns, len(columns) - 4 - len(planes), frame):
        left, top = max(round(record["xmin"]), 0), max(round(record["ymin"]), 0)
        size = min(round(record["xmax"]), frame.width) - left, min(round(record["ymax"]), frame.height) - top
        shift_x = (frame.left / frame.scale + left + 0.5) * ratio - 0.5
        shift_y = (frame.top / frame.scale + top + 0.5) * ratio - 0.5
        logits = np.tensordot(coefficients, planes, axes=1)
        enlarged = cv2.warpAffine(
            logits,
            np.array([[ratio, 0, shift_x], [0, ratio, shift_y]]),
            size,
            flags=cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP,
            borderMode=cv2.BORDER_REPLICATE,
        )
        mask = (enlarged > 0).astype(np.uint8)
        found, _ = cv2.findContours(mask, cv2.RETR_EXTERNAL, cv2.CHAIN_APPROX_SIMPLE, offset=(left, top))
        contour = [[{"x": x, "y": y} for x, y in points.reshape(-1, 2).tolist()] for points in found]
        records.append({"label": record["label"], "score": record["score"], "contour": contour})
    return records


def _objects(columns: NDArray[Any], classes: int, frame: Frame) -> list[tuple[dict[str, Any], NDArray[Any]]]:
    """Return the objects after suppression, with their boxes in image pixels, and the remaining values of each."""
    best = columns[4 : 4 + classes].max(axis=0)
    picked = columns[:, best >= SCORE_THRESHOLD]
    scores, labels = picked[4 : 4 + classes].max(axis=0), picked[4 : 4 + classes].argmax(axis=0)
    corners = np.concatenate([picked[:2] - picked[2:4] / 2, picked[2:4]]).T
    kept = cv2.dnn.NMSBoxesBatched(corners.tolist(), scores.tolist(), labels.tolist(), 0, IOU_THRESHOLD)
    found: list[tuple[dict[str, Any], NDArray[Any]]] = []
    for index in kept:
        x, y, width, height = corners[index].tolist()
        record = {
            "label": LABELS[labels[index]],
            "score": float(scores[index]),
            "xmin": (x - frame.left) / frame.scale,
            "ymin": (y - frame.top) / frame.scale,
            "xmax": (x + width - frame.left) / frame.scale,
            "ymax": (y + height - frame.top) / frame.scale,
        }
        found.append((record, picked[4 + classes :, index]))
    return found


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
