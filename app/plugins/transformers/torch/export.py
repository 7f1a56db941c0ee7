"""Export a transformers model to ONNX with its configuration files, and check that both give the same outputs."""

import importlib
import json
import math
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.assembly.discovery import model_at
from app.core.engine.error_text import needs_extra
from app.core.plugins import registry
from app.core.runtimes.onnxruntime.session import Session
from app.core.settings.model import SETTINGS_FILE, ModelError, ModelSource, read_json_file
from app.plugins.transformers.text.library import first_line
from app.plugins.transformers.text.processor import load_image_processor
from app.plugins.transformers.torch.architecture import ModelSpec, read_model_spec
from app.plugins.transformers.torch.framework import load_torch
from app.plugins.transformers.torch.network import Network, load_network
from app.plugins.transformers.torch.settings import TransformersSettings
from tasks.vision.image import Image

_OUTPUTS: dict[str, Sequence[str]] = {
    "image-classification": ("logits",),
    "object-detection": ("logits", "pred_boxes"),
    "semantic-segmentation": ("logits",),
}
_PIXELS = "pixel_values"

_NOT_COPIED = ("runtime", "uri", "transformers")
"""Settings that apply only to the exported folder."""


class Exporter:
    """Writes the graph of a classifier, a detector or a semantic segmenter.

    The graph and the reference both use float32, whatever dtype the model is served in. Raise ModelError if the model
    cannot be loaded or exported, or `onnx` is not installed.

    Attributes:
        source: the same model on the CPU in float32.
        outputs: names of the graph's outputs.
        resizes: whether its processor produces inputs of several sizes.
    """

    def __init__(self, source: ModelSource) -> None:
        with needs_extra("charioteer export", "torch", ModelError):
            importlib.import_module("onnx")  # torch's exporter needs it
        exact = TransformersSettings(device="cpu", dtype="float32")
        values = msgspec.structs.asdict(source.settings)
        settings = registry().model_settings(**{**values, "runtime": "transformers", "transformers": exact})
        self.source = msgspec.structs.replace(source, file=None, settings=settings)
        self._spec: ModelSpec = read_model_spec(self.source)
        if self._spec.kind not in _OUTPUTS:
            known = "image classification, object detection and semantic segmentation"
            raise ModelError(f"{source.folder}: {self._spec.kind} cannot be exported; {known} can")
        self._network: Network = load_network(self._spec)
        self._processor: Any = load_image_processor(self.source)
        self.outputs = _OUTPUTS[self._spec.kind]
        # (height, width) of the input for a square image.
        self._square = self.pixels(Image(np.zeros((64, 64, 3), np.uint8))).shape[2:]
        self.resizes = self.pixels(Image(np.zeros((60, 90, 3), np.uint8))).shape[2:] != self._square

    def pixels(self, image: Image) -> NDArray[np.float32]:
        """Return the input (1, 3, height, width) that the model's own processor makes from an image."""
        pil_image = importlib.import_module("PIL.Image").fromarray(image.pixels)
        return np.asarray(self._processor(images=pil_image, return_tensors="np")[_PIXELS], np.float32)

    def outputs_for(self, pixels: NDArray[np.float32]) -> dict[str, NDArray[np.float32]]:
        """Return the outputs of the original torch model by name."""
        outputs: Any = self._network({_PIXELS: pixels})
        return {name: outputs[name].float().cpu().numpy() for name in self.outputs}

    def write(self, folder: Path, opset: int, *, any_size: bool) -> Path:
        """Write ``model.onnx`` and the configurations of model and processor into `folder`.

        Raise ModelError if torch cannot export the model.

        Args:
            folder: created if it does not exist.
            opset: version of the ONNX operator set.
            any_size: whether height and width are dynamic; otherwise the image is square.

        Returns:
            The path of the graph.
        """
        folder.mkdir(parents=True, exist_ok=True)
        file, torch = folder / "model.onnx", load_torch()
        height, width = self._square
        axes = {name: {0: "batch"} for name in (_PIXELS, *self.outputs)}
        if any_size:
            axes[_PIXELS] = {0: "batch", 2: "height", 3: "width"}
        try:
            with warnings.catch_warnings():
                # torch warns about operations that tracing fixes; the later comparison shows whether they matter.
                warnings.simplefilter("ignore")
                torch.onnx.export(
                    self._traceable(),
                    (torch.rand(2, 3, height, width),),
                    str(file),
                    input_names=[_PIXELS],
                    output_names=list(self.outputs),
                    dynamic_axes=axes,
                    opset_version=opset,
                    dynamo=False,
                )
        except Exception as error:
            raise ModelError(f"{self._spec.source.folder}: torch cannot export it: {first_line(error)}") from error
        self._write_configuration(folder, None if any_size or not self.resizes else (height, width))
        return file

    def _traceable(self) -> Any:
        torch, network, outputs = load_torch(), self._network, self.outputs

        def forward(self: Any, pixel_values: Any) -> Any:
            result = self.module(pixel_values=pixel_values)
            return tuple(result[name] for name in outputs)

        exported: Any = type("Exported", (torch.nn.Module,), {"forward": forward})()
        exported.module = network.module
        # In training mode the exporter would include dropout.
        return exported.eval()

    def _write_configuration(self, folder: Path, size: tuple[int, int] | None) -> None:
        source = self._spec.source
        labels = dict(enumerate(self._spec.description.labels))
        content = read_json_file(source.folder / "config.json", dict[str, Any])
        _write(folder / "config.json", {**content, "id2label": labels})
        self._processor.save_pretrained(folder)
        if size is not None:
            content = read_json_file(path := folder / "preprocessor_config.json", dict[str, Any])
            _write(path, {**content, "size": {"height": size[0], "width": size[1]}})
        declared = source.folder / SETTINGS_FILE
        if declared.is_file():
            content = read_json_file(declared, dict[str, Any])
            _write(folder / SETTINGS_FILE, {name: content[name] for name in content if name not in _NOT_COPIED})


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False), encoding="utf-8")


Comparison = tuple[tuple[int, int], Mapping[str, float]]
"""The (height, width) of the model input made from an image, and the largest difference between torch and ONNX Runtime
by output name, relative to the largest absolute value, or to 1 if that is smaller."""


class ExportResult(msgspec.Struct, frozen=True, kw_only=True):
    """The written graph, whether it takes inputs of any size, and its comparison with the original model."""

    file: Path
    any_size: bool
    comparisons: Sequence[Comparison]  # none if the graph does not run

    @property
    def max_difference(self) -> float:
        return max((value for _, differences in self.comparisons for value in differences.values()), default=math.inf)


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
    result = _export(exporter, output, opset, any_size=exporter.resizes)
    if result.any_size and result.max_difference > tolerance:
        result = _export(exporter, output, opset, any_size=False)
    if not result.comparisons:
        raise ModelError(f"{result.file} was written, but ONNX Runtime cannot run it")
    return result


def _export(exporter: Exporter, output: Path, opset: int, *, any_size: bool) -> ExportResult:
    file = exporter.write(output, opset, any_size=any_size)
    return ExportResult(file=file, any_size=any_size, comparisons=_compare(exporter, file, any_size=any_size))


def _compare(exporter: Exporter, file: Path, *, any_size: bool) -> Sequence[Comparison]:
    """Compare the raw outputs; return nothing if the graph does not run."""
    session = Session(file)
    comparisons: list[Comparison] = []
    random = np.random.default_rng(0)
    for size in [(480, 640), (640, 480), (300, 300), (200, 900)] if any_size else [(300, 300), (97, 97), (512, 512)]:
        pixels = exporter.pixels(_test_image(random, *size))
        try:
            arrays = session.run({session.inputs[0].name: pixels})
        except Exception:  # noqa: BLE001 - ONNX Runtime's exceptions have no common base class
            return ()
        expected = exporter.outputs_for(pixels)
        actual = {spec.name: array for spec, array in zip(session.outputs, arrays, strict=True)}
        if len(exporter.outputs) > 1:
            actual = _reorder_queries(expected, actual)
        differences = {name: _difference(expected[name], actual[name]) for name in exporter.outputs}
        comparisons.append(((pixels.shape[2], pixels.shape[3]), differences))
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
