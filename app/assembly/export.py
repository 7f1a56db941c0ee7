"""Export a transformers model to ONNX, and check that both give the same outputs."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.assembly.discovery import model_at
from app.assembly.models import load
from app.engine.servable import Servable
from app.runtimes.onnxruntime.session import Session
from app.runtimes.transformers.export import Exporter
from app.settings.model import ModelError, ModelSource
from tasks.exchange.limits import Limits
from tasks.exchange.request import InferenceRequest
from tasks.exchange.tensor import Datatype, Tensor
from tasks.vision.image import Image

__all__ = ("Compared", "Exported", "export_model")


class Compared(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison for one image.

    Attributes:
        size: (height, width) of the model input made from the image.
        outputs: the largest difference between torch and ONNX Runtime by output name, relative to the larger of 1 and
            the largest absolute value.
    """

    size: tuple[int, int]
    outputs: dict[str, float]


class Exported(msgspec.Struct, frozen=True, kw_only=True):
    """The written file, and its comparison with the original model.

    Attributes:
        file: the ONNX graph.
        any_size: whether the graph takes inputs of any size.
        compared: one comparison for each test image.
        scores: the largest difference between the scores of both models when they are served with their own
            preprocessing; None if one of them returns more results than the other.
    """

    file: Path
    any_size: bool
    compared: Sequence[Compared]
    scores: float | None

    @property
    def largest(self) -> float:
        """Return the largest difference over all outputs."""
        return _largest(self.compared)


def export_model(folder: Path, output: Path, opset: int, tolerance: float) -> Exported:
    """Export the model in `folder` to ONNX in `output`, and run both on test images.

    If the processor makes inputs of several sizes, the graph is first exported for any size. If the comparison shows
    that tracing fixed a size-dependent value, the graph is exported again for one size.

    Raises:
        ModelError: when the model cannot be exported.
    """
    source = _only(folder)
    if output.resolve() == folder.resolve():
        raise ModelError(
            f"{output} is the model's own folder; an ONNX file there would be loaded instead of the weights"
        )
    exporter = Exporter(source)
    any_size = exporter.resizes
    file = exporter.write(output, opset, any_size=any_size)
    compared = _compare(exporter, file, any_size=any_size)
    if any_size and (compared is None or _largest(compared) > tolerance):
        any_size = False
        file = exporter.write(output, opset, any_size=False)
        compared = _compare(exporter, file, any_size=False)
    if compared is None:
        raise ModelError(f"{file} was written, but ONNX Runtime cannot run it")
    scores = _compare_scores(load(exporter.source), load(_only(file)), compared[0].size)
    return Exported(file=file, any_size=any_size, compared=compared, scores=scores)


def _compare(exporter: Exporter, file: Path, *, any_size: bool) -> list[Compared] | None:
    """Compare the raw outputs; return None when the graph does not run."""
    session = Session(file)
    found: list[Compared] = []
    for image in _test_images(square=not any_size):
        pixels = exporter.pixels(image)
        try:
            given = session.run({session.inputs[0].name: pixels})
        except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base class
            return None
        wanted = dict(zip(exporter.outputs, exporter.answer(pixels), strict=True))
        numbers = {spec.name: array for spec, array in zip(session.outputs, given, strict=True)}
        if len(exporter.outputs) > 1:
            numbers = _in_order_of(wanted, numbers)
        outputs = {name: _difference(wanted[name], numbers[name]) for name in exporter.outputs}
        found.append(Compared(size=(int(pixels.shape[2]), int(pixels.shape[3])), outputs=outputs))
    return found


def _compare_scores(first: Servable, second: Servable, size: tuple[int, int]) -> float | None:
    """Return the largest score difference for an image that has the model's input size and needs no resizing."""
    image = _test_image(np.random.default_rng(3), *size)
    tensor = Tensor(name="image", datatype=Datatype.UINT8, data=image.pixels)
    found: list[NDArray[np.float64]] = []
    for servable in (first, second):
        request = InferenceRequest(
            id="export", model_name="export", inputs=(tensor,), parameters={"score_threshold": 0.0}
        )
        records = servable.answer(request, Limits()).outputs[0].predictions[0].records()
        found.append(np.sort([float(getattr(record, "score", 0.0)) for record in records]))
    return float(np.abs(found[0] - found[1]).max(initial=0)) if len(found[0]) == len(found[1]) else None


def _only(path: Path) -> ModelSource:
    found = model_at(path)
    if len(found) > 1:
        raise ModelError(f"{path} holds {len(found)} versions; export the folder of one")
    return found[0]


def _test_images(*, square: bool) -> list[Image]:
    random = np.random.default_rng(0)
    sizes = [(300, 300), (97, 97), (512, 512)] if square else [(480, 640), (640, 480), (300, 300), (200, 900)]
    return [_test_image(random, *size) for size in sizes]


def _test_image(random: np.random.Generator, height: int, width: int) -> Image:
    """Return noise added to a brightness gradient, so that every region is different."""
    slope = (
        np.linspace(0, 160, width)[np.newaxis, :, np.newaxis] * np.linspace(0.3, 1, height)[:, np.newaxis, np.newaxis]
    )
    noise = random.integers(0, 96, (height, width, 3))
    return Image((slope + noise).astype(np.uint8))


def _in_order_of(
    wanted: dict[str, NDArray[np.float32]], given: dict[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Return `given` with its queries in the order of `wanted`, matched by similarity.

    Detectors sort queries by score, so queries with almost equal scores may swap places.
    """
    if any(wanted[name].shape != given[name].shape for name in wanted):
        return given
    first = np.concatenate([wanted[name][0] for name in wanted], axis=1)
    second = np.concatenate([given[name][0] for name in wanted], axis=1)
    order: list[int] = []
    for row in first:
        apart = np.abs(second - row).max(axis=1)
        apart[order] = np.inf
        order.append(int(apart.argmin()))
    return {name: given[name][:, order] for name in wanted}


def _difference(wanted: NDArray[np.float32], given: NDArray[np.float32]) -> float:
    if wanted.shape != given.shape or not np.isfinite(given).all():
        return float("inf")
    return float(np.abs(wanted - given).max(initial=0) / np.abs(wanted).max(initial=1))


def _largest(compared: Sequence[Compared]) -> float:
    return max(value for comparison in compared for value in comparison.outputs.values())
