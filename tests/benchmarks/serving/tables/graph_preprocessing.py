"""Compare normalisation by table look-ups with graphs that take uint8 pixels and normalise them."""

import statistics
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import onnx
import onnxruntime
import openvino
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.benchmarks.serving.floor import Chain
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import IMAGE_SIZES, Workload

_MODELS = ("classifier", "detector", "medium")
_TABLE = (np.arange(256) / 255).astype(np.float32)

Run = Callable[[NDArray[Any]], NDArray[Any]]


def graph_preprocessing(workload: Workload, rounds: int, calls: int) -> Section:
    """Measure resizing, normalisation and the model for each runtime, with and without the normalisation in it."""
    rows: list[list[Cell]] = []
    for name in _MODELS:
        file, size = workload.model(name), next(iter(IMAGE_SIZES))
        image = workload.image(name, size)
        pixels = cv2.imread(str(image), cv2.IMREAD_COLOR_RGB)
        chain, body = Chain(file), chariot(0, name, image).body
        measured: dict[tuple[str, bool], Callable[[], NDArray[Any]]] = {}
        for runtime, (outside, inside) in _runtimes(file, workload.folder.parent, chain.side).items():
            measured[runtime, False] = partial(_call, outside, _planes, pixels, chain.side)
            measured[runtime, True] = partial(_call, inside, _letterbox, pixels, chain.side)
        times = _times({("request", False): partial(chain, body), **measured}, rounds, calls)
        request = statistics.median(times["request", False])
        for runtime in dict.fromkeys(runtime for runtime, _ in measured):
            tables, in_graph = (times[runtime, inside] for inside in (False, True))
            saved = [(outside - inside) / request for outside, inside in zip(tables, in_graph, strict=True)]
            difference = np.abs(measured[runtime, False]() - measured[runtime, True]()).max()
            medians = [statistics.median(values) for values in (tables, in_graph)]
            gain = f"{statistics.median(saved):.1%} ({min(saved):.1%} to {max(saved):.1%})"
            rows.append([name, runtime, *medians, gain, f"{difference:.1e}"])
    about = (
        "CPU milliseconds to letterbox, normalise and run a VGA image in one thread: the median of "
        f"{rounds} rounds of {calls} calls, in turns. *Look-ups* write FP32 planes with a table of 256 values, as "
        "the server does. *In the graph*, the model takes uint8 pixels in the shape [1, height, width, 3]: the scale "
        "is part of the first convolution in ONNX Runtime, and OpenVINO's PrePostProcessor adds it. The gain is the "
        "difference as a share of the floor's whole request in fp32, with the lowest and highest of the rounds. The "
        "last column is the largest difference of an output; the detector returns boxes in pixels."
    )
    columns = ["model", "runtime", "look-ups", "in the graph", "gain of a request", "difference"]
    return Section(title="Preprocessing in the graph", about=about, columns=columns, rows=rows)


def _times(
    measured: Mapping[tuple[str, bool], Callable[[], object]], rounds: int, calls: int
) -> dict[tuple[str, bool], list[float]]:
    times: dict[tuple[str, bool], list[float]] = {key: [] for key in measured}
    for _ in range(rounds):
        for key, call in measured.items():
            call()
            started = time.process_time()
            for _ in range(calls):
                call()
            times[key].append((time.process_time() - started) / calls * 1000)
    return times


def _call(run: Run, prepare: Callable[[NDArray[Any], int], NDArray[Any]], pixels: NDArray[Any], side: int) -> Any:
    return run(prepare(pixels, side))


def _letterbox(pixels: NDArray[Any], side: int) -> NDArray[Any]:
    """Return [1, side, side, 3] uint8."""
    height, width = pixels.shape[:2]
    scale = min(side / width, side / height)
    new_width, new_height = round(width * scale), round(height * scale)
    left, top = (side - new_width) // 2, (side - new_height) // 2
    batch = np.zeros((1, side, side, 3), np.uint8)
    batch[0, top : top + new_height, left : left + new_width] = cv2.resize(pixels, (new_width, new_height))
    return batch


def _planes(pixels: NDArray[Any], side: int) -> NDArray[Any]:
    """Return [1, 3, side, side] float32."""
    height, width = pixels.shape[:2]
    scale = min(side / width, side / height)
    new_width, new_height = round(width * scale), round(height * scale)
    left, top = (side - new_width) // 2, (side - new_height) // 2
    small = cv2.resize(pixels, (new_width, new_height))
    batch = np.zeros((1, 3, side, side), np.float32)
    for channel in range(3):
        target = batch[0, channel, top : top + new_height, left : left + new_width]
        cv2.LUT(cv2.extractChannel(small, channel), _TABLE, target)
    return batch


def _runtimes(file: Path, folder: Path, side: int) -> Mapping[str, tuple[Run, Run]]:
    """Return the graph for planes and the graph for uint8 pixels, for each runtime and precision."""
    with_bytes = folder / "uint8.onnx"
    onnx.save(_with_uint8_input(onnx.load(file), side), with_bytes)
    runs = {"onnxruntime, fp32": (_onnxruntime(file), _onnxruntime(with_bytes))}
    for precision in ("f32", "bf16"):
        name = f"openvino, {precision.replace('f32', 'fp32')}"
        runs[name] = _openvino(file, side, precision, inside=False), _openvino(file, side, precision, inside=True)
    return runs


def _onnxruntime(file: Path) -> Run:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda batch: session.run(None, {name: batch})[0]


def _openvino(file: Path, side: int, precision: str, *, inside: bool) -> Run:
    core = openvino.Core()
    model = core.read_model(str(file))
    model.reshape([1, 3, side, side])
    if inside:
        steps: Any = openvino.preprocess.PrePostProcessor(model)
        steps.input().tensor().set_element_type(openvino.Type.u8).set_layout(openvino.Layout("NHWC"))
        steps.input().model().set_layout(openvino.Layout("NCHW"))
        steps.input().preprocess().convert_element_type(openvino.Type.f32).scale(255.0)
        model = steps.build()
    config = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": 1, "NUM_STREAMS": 1}
    request = core.compile_model(model, "CPU", {**config, "ENABLE_CPU_PINNING": False}).create_infer_request()

    def run(batch: NDArray[Any]) -> NDArray[Any]:
        request.infer([batch], share_inputs=True, share_outputs=True)
        return request.get_output_tensor(0).data.copy()

    return run


def _with_uint8_input(model: Any, side: int) -> Any:
    """Return the graph with an input [1, side, side, 3] of uint8, and the scale in its first convolution."""
    graph = model.graph
    name = graph.input[0].name
    first = next(node for node in graph.node if name in node.input)
    weights = next(tensor for tensor in graph.initializer if tensor.name == first.input[1])
    scaled = numpy_helper.to_array(weights) / np.float32(255)
    weights.CopyFrom(numpy_helper.from_array(scaled.astype(np.float32), weights.name))
    first.input[0] = "planes"
    graph.node.insert(0, helper.make_node("Transpose", ["floats"], ["planes"], perm=[0, 3, 1, 2]))
    graph.node.insert(0, helper.make_node("Cast", [name], ["floats"], to=TensorProto.FLOAT))
    graph.input[0].CopyFrom(helper.make_tensor_value_info(name, TensorProto.UINT8, [1, side, side, 3]))
    return model
