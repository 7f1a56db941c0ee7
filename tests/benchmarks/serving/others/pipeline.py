"""Implement the user code of other servers: an encoded image in, the best classes out."""

import os
from pathlib import Path
from typing import Any, Protocol

import cv2
import numpy as np
import onnxruntime

from tests.benchmarks.serving.shape import LABELS, SIDE, TOP_K

__all__ = ("Pipeline", "pipeline")


class Pipeline(Protocol):
    """The interface that every server calls."""

    def best(self, image: bytes) -> list[dict[str, Any]]:
        """Return the best classes of an encoded image."""
        ...


class Plain:
    """The pipeline of most examples: one step after the other on full floating-point arrays."""

    def __init__(self, model: Path) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])

    def best(self, image: bytes) -> list[dict[str, Any]]:
        """Return the best classes of an encoded image."""
        pixels = cv2.cvtColor(cv2.imdecode(np.frombuffer(image, np.uint8), cv2.IMREAD_COLOR), cv2.COLOR_BGR2RGB)
        height, width = pixels.shape[:2]
        scale = min(SIDE / width, SIDE / height)
        small = cv2.resize(pixels, (round(width * scale), round(height * scale)))
        canvas = np.zeros((SIDE, SIDE, 3), np.float32)
        top, left = (SIDE - small.shape[0]) // 2, (SIDE - small.shape[1]) // 2
        canvas[top : top + small.shape[0], left : left + small.shape[1]] = small.astype(np.float32) / 255.0
        batch = np.transpose(canvas, (2, 0, 1))[np.newaxis].astype(np.float32)
        scores = self.session.run(None, {"input": batch})[0][0]
        order = np.argsort(scores)[::-1][:TOP_K]
        return [{"label": LABELS[index], "score": float(scores[index])} for index in order]


def pipeline() -> Pipeline:
    """Return the pipeline of the environment: `MODEL` is the graph, `PIPELINE` is `plain` or `ours`."""
    model = Path(os.environ["MODEL"])
    if os.environ["PIPELINE"] == "plain":
        return Plain(model)
    from app.server.process_setup import configure_process
    from tests.benchmarks.serving.floor import Chain

    configure_process()
    return Chain(model)
