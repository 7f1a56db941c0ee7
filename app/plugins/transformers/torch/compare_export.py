"""Export a transformers model to ONNX, and check that both give the same outputs."""

from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.assembly.discovery import model_at
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import ModelError
from app.plugins.transformers.torch.export import Exporter
from tasks.vision.image import Image


class ExportComparison(msgspec.Struct, frozen=True, kw_only=True):
    """The comparison for one image.

    Attributes:
        size: (height, width) of the model input made from the image.
        differences: the largest difference between torch and ONNX Runtime by output name, relative to the largest
            absolute value, or to 1 if that is smaller.
    """

    size: tuple[int, int]
    differences: dict[str, float]


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The written file, and its comparison with the original model.

    Attributes:
        file: the ONNX graph.
        any_size: whether the graph takes inputs of any size.
    """

    file: Path
    any_size: bool
    comparisons: Sequence[ExportComparison]

    @property
    def max_difference(self) -> float:
        return _max_difference(self.comparisons)


def export_model(folder: Path, output: Path, opset: int, tolerance: float) -> ExportResult:
    """Export the model in `folder` to ONNX in `output`, and run both on test images.

    If the processor makes inputs of several sizes, the graph is first exported for any size. If the comparison shows
    that tracing fixed a size-dependent value, the graph is exported again for one size. Raise ModelError when the model
    cannot be exported.
    """
    sources = model_at(folder)
    if len(sources) > 1:
        raise ModelError(f"{folder} holds {len(sources)} versions; export the folder of one")
    if output.resolve() == folder.resolve():
        raise ModelError(
            f"{output} is the model's own folder; an ONNX file there would be loaded instead of the weights"
        )
    exporter = Exporter(sources[0])
    any_size = exporter.resizes
    file = exporter.write(output, opset, any_size=any_size)
    comparisons = _compare(exporter, file, any_size=any_size)
    if any_size and (comparisons is None or _max_difference(comparisons) > tolerance):
        any_size = False
        file = exporter.write(output, opset, any_size=False)
        comparisons = _compare(exporter, file, any_size=False)
    if comparisons is None:
        raise ModelError(f"{file} was written, but ONNX Runtime cannot run it")
    return ExportResult(file=file, any_size=any_size, comparisons=comparisons)


def _compare(exporter: Exporter, file: Path, *, any_size: bool) -> list[ExportComparison] | None:
    """Compare the raw outputs; return None when the graph does not run."""
    session = Session(file)
    comparisons: list[ExportComparison] = []
    random = np.random.default_rng(0)
    for size in [(480, 640), (640, 480), (300, 300), (200, 900)] if any_size else [(300, 300), (97, 97), (512, 512)]:
        pixels = exporter.pixels(_test_image(random, *size))
        try:
            arrays = session.run({session.inputs[0].name: pixels})
        except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base class
            return None
        expected = exporter.outputs_for(pixels)
        actual = {spec.name: array for spec, array in zip(session.outputs, arrays, strict=True)}
        if len(exporter.outputs) > 1:
            actual = _reorder_queries(expected, actual)
        differences = {name: _difference(expected[name], actual[name]) for name in exporter.outputs}
        comparisons.append(ExportComparison(size=(int(pixels.shape[2]), int(pixels.shape[3])), differences=differences))
    return comparisons


def _test_image(random: np.random.Generator, height: int, width: int) -> Image:
    """Return noise added to a brightness gradient, so that every region is different."""
    gradient = np.outer(np.linspace(0.3, 1, height), np.linspace(0, 160, width))[:, :, np.newaxis]
    noise = random.integers(0, 96, (height, width, 3))
    return Image((gradient + noise).astype(np.uint8))


def _reorder_queries(
    expected: dict[str, NDArray[np.float32]], actual: dict[str, NDArray[np.float32]]
) -> dict[str, NDArray[np.float32]]:
    """Return `actual` with its queries in the order of `expected`, matched by similarity.

    Detectors sort queries by score, so queries with almost equal scores may swap places.
    """
    if any(expected[name].shape != actual[name].shape for name in expected):
        return actual
    expected_queries = np.concatenate([expected[name][0] for name in expected], axis=1)
    actual_queries = np.concatenate([actual[name][0] for name in expected], axis=1)
    order: list[int] = []
    for query in expected_queries:
        distances = np.abs(actual_queries - query).max(axis=1)
        distances[order] = np.inf
        order.append(int(distances.argmin()))
    return {name: actual[name][:, order] for name in expected}


def _difference(expected: NDArray[np.float32], actual: NDArray[np.float32]) -> float:
    if expected.shape != actual.shape or not np.isfinite(actual).all():
        return float("inf")
    return float(np.abs(expected - actual).max(initial=0) / np.abs(expected).max(initial=1))


def _max_difference(comparisons: Sequence[ExportComparison]) -> float:
    return max(value for comparison in comparisons for value in comparison.differences.values())
