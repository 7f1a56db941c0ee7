"""Measure JPEG decoders in their own environment, and print the CPU milliseconds of each round as JSON."""

import importlib
import io
import json
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from app.core.server.process_setup import configure_process
from tests.benchmarks.serving.floor import Chain

Decoder = Callable[[bytes], Any]


def decoders() -> Mapping[str, tuple[Decoder, Decoder | None]]:
    """Return the decoders that are installed: to full size, and to half of each side where they have it."""
    found: dict[str, tuple[Decoder, Decoder | None]] = {"OpenCV": (_opencv, _opencv_half)}
    for name, module, make in (
        ("Pillow", "PIL.Image", _pillow),
        ("simplejpeg", "simplejpeg", _simplejpeg),
        ("imagecodecs", "imagecodecs", _imagecodecs),
    ):
        try:
            found[name] = make(importlib.import_module(module))
        except ImportError:
            continue
    return found


def _opencv(data: bytes) -> Any:
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR_RGB)


def _opencv_half(data: bytes) -> Any:
    # The grayscale flag carries only the size here, as `tasks/vision/image.py` uses it.
    return cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_REDUCED_GRAYSCALE_2 | cv2.IMREAD_COLOR_RGB)


def _pillow(module: Any) -> tuple[Decoder, Decoder]:
    def half(data: bytes) -> Any:
        image = module.open(io.BytesIO(data))
        image.draft("RGB", (image.width // 2, image.height // 2))
        return np.asarray(image)

    return lambda data: np.asarray(module.open(io.BytesIO(data)).convert("RGB")), half


def _simplejpeg(module: Any) -> tuple[Decoder, Decoder]:
    def half(data: bytes) -> Any:
        height, width, *_ = module.decode_jpeg_header(data)
        return module.decode_jpeg(data, "RGB", min_height=height // 2, min_width=width // 2, min_factor=2)

    return module.decode_jpeg, half


def _imagecodecs(module: Any) -> tuple[Decoder, None]:
    return module.jpeg8_decode, None


def main(model: str, body: str, image: str, rounds: str, calls: str) -> None:
    """Measure the decoders of one image, and a whole request of the floor, in turns."""
    configure_process()
    data, content, chain = Path(image).read_bytes(), Path(body).read_bytes(), Chain(Path(model))
    measured: dict[str, Callable[[], Any]] = {"request": lambda: chain(content)}
    for name, (full, half) in decoders().items():
        measured[name] = lambda decode=full: decode(data)
        if half is not None:
            measured[f"{name}, half"] = lambda decode=half: decode(data)
    times: dict[str, list[float]] = {name: [] for name in measured}
    for _ in range(int(rounds)):
        for name, call in measured.items():
            call()
            started = time.process_time()
            for _ in range(int(calls)):
                call()
            times[name].append((time.process_time() - started) / int(calls) * 1000)
    print(json.dumps(times))


if __name__ == "__main__":
    main(*sys.argv[1:])
