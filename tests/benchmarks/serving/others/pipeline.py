"""Implement the user code of other servers: an encoded image in, the best classes or the found objects out."""

import os
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import onnxruntime
from numpy.typing import NDArray

from tests.benchmarks.serving.shape import IOU_THRESHOLD, LABELS, SCORE_THRESHOLD, TOP_K


class Pipeline(Protocol):
    """The interface that every server calls."""

    def answer(self, image: bytes) -> list[dict[str, Any]]: ...


class Plain:
    """The pipeline of most examples: one step after the other on full floating-point arrays.

    The outputs of a detector are read row by row, as Ultralytics' example for ONNX Runtime does.
    """

    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        (spec,) = self.session.get_inputs()
        self.input, self.side = spec.name, spec.shape[-1]

    def answer(self, image: bytes) -> list[dict[str, Any]]:
        pixels = cv2.cvtColor(cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        side, (height, width) = self.side, pixels.shape[:2]
        scale = min(side / width, side / height)
        small = cv2.resize(pixels, (round(width * scale), round(height * scale)))
        canvas = np.zeros((side, side, 3), np.float32)
        top, left = (side - small.shape[0]) // 2, (side - small.shape[1]) // 2
        canvas[top : top + small.shape[0], left : left + small.shape[1]] = small.astype(np.float32) / 255.0
        batch = np.transpose(canvas, (2, 0, 1))[np.newaxis].astype(np.float32)
        output = self.session.run(None, {self.input: batch})[0][0]
        return _classes(output) if output.ndim == 1 else _objects(output, scale, left, top)


def _classes(scores: NDArray[Any]) -> list[dict[str, Any]]:
    order = np.argsort(scores)[::-1][:TOP_K]
    return [{"label": LABELS[index], "score": float(scores[index])} for index in order]


def _objects(output: NDArray[Any], scale: float, left: int, top: int) -> list[dict[str, Any]]:
    boxes: list[list[float]] = []
    scores: list[float] = []
    class_ids: list[int] = []
    for row in np.transpose(output):
        score = np.amax(row[4:])
        if score >= SCORE_THRESHOLD:
            x, y, width, height = row[:4]
            box = [(x - width / 2 - left) / scale, (y - height / 2 - top) / scale, width / scale, height / scale]
            boxes.append([float(value) for value in box])
            scores.append(float(score))
            class_ids.append(int(np.argmax(row[4:])))
    return [
        {
            "label": LABELS[class_ids[index]],
            "score": scores[index],
            "xmin": boxes[index][0],
            "ymin": boxes[index][1],
            "xmax": boxes[index][0] + boxes[index][2],
            "ymax": boxes[index][1] + boxes[index][3],
        }
        for index in cv2.dnn.NMSBoxes(boxes, scores, SCORE_THRESHOLD, IOU_THRESHOLD)
    ]


def pipeline() -> Pipeline:
    """Return the pipeline of the environment: `MODEL` is the graph, `PIPELINE` is `plain` or `ours`."""
    model = Path(os.environ["MODEL"])
    if os.environ["PIPELINE"] == "plain":
        return Plain(model)
    from app.core.server.process_setup import configure_process
    from tests.benchmarks.serving.floor import Chain

    configure_process()
    return Chain(model)
