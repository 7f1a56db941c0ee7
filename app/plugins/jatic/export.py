"""Write an ONNX classifier as JATIC_ONNX v1: ``charioteer export --format jatic``.

The normalisation and the softmax or sigmoid go into the graph. So does the resize, unless it is the one of the
contract; the graph then takes images of any size.
"""

import importlib
import shutil
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.assembly.discovery import latest_version, model_at
from app.core.cli.samples import sample_image
from app.core.engine.error_text import needs_extra
from app.core.runtimes.folder import resolve_confined
from app.core.runtimes.onnxruntime.files.external_data import check_external_data
from app.core.runtimes.onnxruntime.files.location import find_graphs
from app.core.runtimes.onnxruntime.files.model_files import read_model_files
from app.core.runtimes.onnxruntime.graph import ImageInputs, read_inputs
from app.core.runtimes.onnxruntime.images.preprocessing import Preprocessing
from app.core.runtimes.onnxruntime.inspection import Inspection, inspect_model
from app.core.runtimes.onnxruntime.loading import open_session
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelError, ModelSource
from app.plugins.in_process.model import InProcessModel
from app.plugins.jatic.contract import LAYOUT, METADATA_FILE, NAME, VERSION, Contract
from app.plugins.jatic.graph_resize import MIN_OPSET, GraphBuilder, add_resize, reasons_against
from app.plugins.jatic.layout import changed_settings
from tasks.inference.tensor import Datatype
from tasks.task import TaskType
from tasks.vision.image import decode_image

_GRAPH = "model.onnx"
_PREFIX = "model/"
_ELEMENT_TYPES = {Datatype.FP32: 1, Datatype.UINT8: 2, Datatype.FP16: 10}
"""Numbers of ``onnx.TensorProto.DataType``."""
_ACTIVATIONS = {"logits": "Softmax", "multi-label": "Sigmoid", "probabilities": "Identity"}
"""The operator by the layout of a classifier."""
_MAX_BYTES = 2**31 - 1
"""Of a protobuf file."""
_SAMPLE_SIZES = ((480, 640), (333, 250))
"""(height, width) of the images on which both models are compared, pixels."""


class JaticExport(msgspec.Struct, frozen=True, kw_only=True):
    """The written files. `any_size` says whether the graph resizes the images.

    `difference` is the largest one of a score between both models on images of several sizes; None for a copy.
    """

    graph: Path
    metadata: Path
    difference: float | None = None
    any_size: bool = False


def export_jatic(path: Path, output: Path) -> JaticExport:
    """Write the classifier at `path`, a file or a folder, into the folder `output`. Copy a model of JATIC_ONNX.

    Raise ModelError if it is not an ONNX classifier, JATIC_ONNX cannot express its preprocessing, or the extra is not
    installed.
    """
    source = latest_version(model_at(path))
    if output.resolve() == source.folder.resolve():
        raise ModelError(f"{output} is the model's own folder; name another one")
    if source.settings.implementation is not None or not find_graphs(source):
        raise ModelError(f"{source.folder} is not an ONNX model; export it to ONNX first: `charioteer export`")
    # This checks the files of the model.
    model = InProcessModel(path)
    session = open_session(source)
    if model.description.task_type is not TaskType.IMAGE_CLASSIFICATION and model.description.layout != LAYOUT:
        raise ModelError(f"{session.file}: only classifiers can be exported, this is {model.description.task_type}")
    inspection, files = inspect_model(source, session), read_model_files(source, session)
    if isinstance(files.metadata.contract, Contract):
        return _copy(source, session, files.metadata.contract, model.description.labels, output)
    if len(session.inputs) != 1:
        raise ModelError(f"{session.file}: {NAME} has one input, but the graph has {len(session.inputs)}")
    inputs = read_inputs(session.inputs, files)
    reasons = reasons_against(inspection.graph.preprocessing)
    if reasons:
        raise ModelError(
            f'{session.file}: {NAME} cannot express {" and ".join(reasons)}; declare "preprocessing" with the resize '
            '"stretch" or "crop" and the interpolation "bilinear" in model-settings.json, measure the model again with '
            "`charioteer evaluate`, and export it then"
        )
    any_size = not _is_contract_resize(inspection.graph.preprocessing)
    with needs_extra("charioteer export --format jatic", "quantize", ModelError):
        onnx = importlib.import_module("onnx")
        # A submodule that the package does not import.
        importlib.import_module("onnx.compose")
    exported = _wrap(onnx, session.file, inspection, inputs, any_size=any_size)
    if exported.ByteSize() > _MAX_BYTES:
        raise ModelError(f"{session.file} is too large for one file: {exported.ByteSize():,} bytes")
    output.mkdir(parents=True, exist_ok=True)
    graph, metadata = output / _GRAPH, output / METADATA_FILE
    onnx.save(exported, str(graph))
    _write_json(metadata, _metadata(inspection, inputs, any_size=any_size))
    difference = _largest_difference(model, InProcessModel(graph))
    return JaticExport(graph=graph, metadata=metadata, difference=difference, any_size=any_size)


def _copy(
    source: ModelSource, session: GraphSession, contract: Contract, labels: Sequence[str], output: Path
) -> JaticExport:
    """Copy a model of JATIC_ONNX; only labels in its settings may change the metadata."""
    if changed := changed_settings(source.settings, contract.sides):
        raise ModelError(
            f"{session.file}: {', '.join(changed)} in model-settings.json break the contract of {NAME}, which cannot "
            "express them; remove them, and export again"
        )
    output.mkdir(parents=True, exist_ok=True)
    graph, metadata = output / session.file.name, output / contract.file.name
    shutil.copyfile(session.file, graph)
    for name, file in check_external_data(session.file, partial(resolve_confined, source=source)).items():
        (output / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, output / name)
    shutil.copyfile(contract.file, metadata)
    if source.settings.labels is not None:
        content = msgspec.json.decode(contract.file.read_bytes(), type=dict[str, object])
        _write_json(metadata, {**content, "index2label": _numbered(labels)})
    return JaticExport(graph=graph, metadata=metadata)


def _is_contract_resize(options: Preprocessing) -> bool:
    kept = (options.resize, options.interpolation, options.antialias, options.shorter_side)
    return kept == ("stretch", "bilinear", False, min(options.height, options.width))


def _metadata(inspection: Inspection, inputs: ImageInputs, *, any_size: bool) -> dict[str, object]:
    options, labels = inspection.graph.preprocessing, inspection.description.labels
    return {
        "interface": {"name": NAME, "version": VERSION},
        "io": {
            "batchSize": inputs.batch,
            "interface": "IMAGE_CLASSIFICATION",
            "input": {
                "channels": "GRAYSCALE" if inputs.channels == 1 else "RGB",
                "height": -1 if any_size else options.height,
                "width": -1 if any_size else options.width,
            },
            "output": {"nClasses": len(labels)},
        },
        "index2label": _numbered(labels),
    }


def _numbered(labels: Sequence[str]) -> dict[str, str]:
    return {str(number): label for number, label in enumerate(labels)}


def _write_json(file: Path, content: object) -> None:
    file.write_bytes(msgspec.json.format(msgspec.json.encode(content)) + b"\n")


def _wrap(onnx: Any, file: Path, inspection: Inspection, inputs: ImageInputs, *, any_size: bool) -> Any:
    """Return the model with the input ``image`` in 0..1 and the output ``scores`` in 0..1."""
    model = onnx.load(str(file))
    versions = [entry.version for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    if max(versions, default=0) < MIN_OPSET:
        raise ModelError(f"{file} has an opset below {MIN_OPSET}; export it with opset {MIN_OPSET} or later")
    model = onnx.compose.add_prefix(model, _PREFIX)
    graph, image, (output,) = model.graph, inputs.image, inspection.match.outputs
    before, after = GraphBuilder(onnx), GraphBuilder(onnx)
    pixels = _prepare(before, inspection.graph.preprocessing, inputs, any_size=any_size)
    before.nodes.append(onnx.helper.make_node("Identity", [pixels], [_PREFIX + image.name]))
    after.constants = before.constants
    after.nodes = [*before.nodes, *graph.node]
    scores = after.add("Cast", _PREFIX + output.name, to=_ELEMENT_TYPES[Datatype.FP32])
    scores = after.add("Flatten", scores)
    activation = _ACTIVATIONS[inspection.match.layout]
    axis = {"axis": 1} if activation == "Softmax" else {}
    after.nodes.append(onnx.helper.make_node(activation, [scores], ["scores"], **axis))
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:], model.metadata_props[:]
    graph.node.extend(after.nodes)
    graph.initializer.extend(after.constants)
    options, floats = inspection.graph.preprocessing, _ELEMENT_TYPES[Datatype.FP32]
    batch = "batch" if inputs.batch == -1 else inputs.batch
    sides = ("height", "width") if any_size else (options.height, options.width)
    value_info: Callable[..., Any] = onnx.helper.make_tensor_value_info
    graph.input.append(value_info("image", floats, [batch, inputs.channels, *sides]))
    graph.output.append(value_info("scores", floats, [batch, len(inspection.description.labels)]))
    # Earlier versions list the constants as inputs.
    model.ir_version = max(model.ir_version, 4)
    return model


def _prepare(builder: GraphBuilder, options: Preprocessing, inputs: ImageInputs, *, any_size: bool) -> str:
    """Add what makes the graph's input from ``image``, and return its name."""
    is_grey, datatype = inputs.channels == 1, inputs.image.datatype
    pixels = builder.add("Mul", "image", builder.constant(255))
    if any_size:
        pixels = add_resize(builder, pixels, options, grey=is_grey)
    if datatype is Datatype.UINT8:
        pixels = builder.add("Round", pixels)
    else:
        mean, std = (_by_channel(values, is_grey=is_grey) for values in (options.mean, options.std))
        # One product and one sum round less than a division after each.
        scaled = builder.add("Mul", pixels, builder.constant(options.scale / std))
        pixels = builder.add("Sub", scaled, builder.constant(mean / std))
    if options.bgr:
        pixels = builder.add("Gather", pixels, builder.constant([2, 1, 0], np.int64), axis=1)
    if inputs.channels_last:
        pixels = builder.add("Transpose", pixels, perm=[0, 2, 3, 1])
    return builder.add("Cast", pixels, to=_ELEMENT_TYPES[datatype])


def _by_channel(values: Sequence[float], *, is_grey: bool) -> NDArray[np.float64]:
    return np.array(values[:1] if is_grey else values, np.float64).reshape(1, -1, 1, 1)


def _largest_difference(model: InProcessModel, exported: InProcessModel) -> float:
    """Return the largest difference of a score on a drawn image with noise, in several sizes."""
    sample = decode_image(sample_image()).pixels
    noise = np.random.default_rng(0).integers(0, 60, sample.shape, np.uint8)
    largest = 0.0
    for height, width in _SAMPLE_SIZES:
        pixels = cv2.resize(cv2.add(sample, noise), (width, height), interpolation=cv2.INTER_AREA)
        found, expected = (_scores(one, pixels) for one in (exported, model))
        largest = max(largest, float(np.abs(found - expected).max()))
    return largest


def _scores(model: InProcessModel, pixels: NDArray[Any]) -> NDArray[np.float32]:
    """Return the scores by class number."""
    labels = list(model.description.labels)
    # The model's settings may have other defaults.
    everything = {"action": "predict_proba", "score_threshold": 0.0, "top_k": len(labels), "labels": labels}
    found: Any = model.predict([pixels], **everything)[0]
    scores = np.full(len(labels), np.nan, np.float32)
    scores[list(found.class_ids or range(len(labels)))] = found.scores
    return scores


def _report(path: Path, output: Path) -> tuple[Sequence[str], float]:
    """Export a model; return lines for the terminal, and the largest difference of a score."""
    exported = export_jatic(path, output)
    written = f"Wrote {exported.graph} and {exported.metadata}"
    if exported.difference is None:
        return [f"{written}, which are copies: the model is of {NAME} already."], 0.0
    takes = "images of any size, which its graph resizes" if exported.any_size else "images that the tools resize"
    lines = [f"{written}; it takes {takes}.", f"Scores differ by at most {exported.difference:.2e}."]
    return lines, exported.difference


EXPORT_FORMATS = (("jatic", _report),)
"""Formats of ``charioteer export``."""
