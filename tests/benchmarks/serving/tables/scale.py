"""Measure the cost of a request as one quantity grows."""

import json
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import matplotlib as mpl
import msgspec
import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from tests.benchmarks.serving.cost import cost, measure_server
from tests.benchmarks.serving.load import BenchmarkRequest, send
from tests.benchmarks.serving.processes import ROOT, charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import Workload

mpl.use("agg")

from matplotlib import pyplot

_IMAGES = (1, 2, 4, 8, 16, 32, 64)
_MODELS = (1, 10, 50, 100, 200)
_CONNECTIONS = (1, 8, 64, 256, 1000)
_BOXES = (0, 10, 100, 1000, 10_000)

Points = Sequence[tuple[float, float]]


def scale(workload: Workload, rounds: int, requests: int, image: Path) -> Section:
    """Measure four curves, and plot them to the file `image`."""
    curves: dict[str, Points] = {
        "images in a request": _images(workload, rounds, requests),
        "models that are loaded": _models(rounds, requests),
        "connections at once": _connections(workload, rounds, requests),
        "boxes in an answer": _boxes(workload, rounds, requests),
    }
    figure, axes = pyplot.subplots(1, len(curves), figsize=(16, 4), layout="constrained")
    for axis, (name, points) in zip(axes, curves.items(), strict=True):
        axis.plot(*zip(*points, strict=True), marker="o")
        axis.set_xlabel(name)
        axis.set_xscale("symlog")
        axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("CPU ms of a request (first: of an image)")
    figure.savefig(image, dpi=100)
    rows: list[list[Cell]] = [[name, int(x), y] for name, points in curves.items() for x, y in points]
    about = (
        "CPU milliseconds of a request while one quantity grows. Images in a request: CPU of each image, small "
        "model, VGA. Models that are loaded: requests to one half_plus_two model. Connections at once: small "
        "model. Boxes in an answer: a detector that returns a given number of boxes."
    )
    columns = ["what grows", "to", "CPU ms"]
    return Section(title="Scale", about=about, columns=columns, rows=rows, image=image.name)


def _measure(measure: Callable[[], tuple[float, object]], rounds: int) -> float:
    return cost(rounds, it=measure)["it"].median  # pyright: ignore[reportArgumentType]


def _images(workload: Workload, rounds: int, requests: int) -> Points:
    points: list[tuple[float, float]] = []
    with charioteer("--model", str(workload.folder / "small")) as server:
        template = chariot(server.ports["http"], "small", workload.images["vga"])
        (tensor,) = msgspec.json.decode(template.body)["inputs"]
        for count in _IMAGES:
            body = msgspec.json.encode({"inputs": [{**tensor, "name": f"i{index}"} for index in range(count)]})
            request = BenchmarkRequest(template.port, template.target, body)
            send(request, 5, 1)
            request_count = max(10, requests // count)
            points.append((count, _measure(measure_server(server, request, request_count, 2), rounds) / count))
    return points


def _models(rounds: int, requests: int) -> Points:
    points: list[tuple[float, float]] = []
    body = json.dumps({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [2.0]}]}).encode()
    for count in _MODELS:
        with tempfile.TemporaryDirectory() as folder:
            for index in range(count):
                shutil.copytree(ROOT / "fixtures" / "models" / "half_plus_two", Path(folder) / f"model-{index}")
            with charioteer("--model-repository", folder) as server:
                request = BenchmarkRequest(server.ports["http"], f"/v2/models/model-{count - 1}/infer", body)
                send(request, 50, 1)
                points.append((count, _measure(measure_server(server, request, requests * 3, 8), rounds)))
    return points


def _connections(workload: Workload, rounds: int, requests: int) -> Points:
    with charioteer("--model", str(workload.folder / "small"), "--max-waiting", "2000") as server:
        request = chariot(server.ports["http"], "small", workload.images["vga"])
        send(request, 50, 1)
        return [
            (count, _measure(measure_server(server, request, max(requests, 2 * count), count), rounds))
            for count in _CONNECTIONS
        ]


def _boxes(workload: Workload, rounds: int, requests: int) -> Points:
    points: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "finder"
        folder.mkdir()
        _write_detector(folder / "model.onnx", max(_BOXES))
        settings = {"task_type": "OBJECT_DETECTION", "layout": "end2end", "labels": ["thing"]}
        (folder / "model-settings.json").write_text(json.dumps(settings))
        with charioteer("--model", str(folder)) as server:
            template = chariot(server.ports["http"], "finder", workload.images["vga"])
            (tensor,) = msgspec.json.decode(template.body)["inputs"]
            for count in _BOXES:
                parameters = {"top_k": max(1, count), "score_threshold": 1.0 if count == 0 else 0.0}
                body = msgspec.json.encode({"inputs": [{**tensor, "parameters": parameters}]})
                request = BenchmarkRequest(template.port, template.target, body)
                send(request, 5, 1)
                request_count = max(10, requests // (1 + count // 1000))
                points.append((count, _measure(measure_server(server, request, request_count, 2), rounds)))
    return points


def _write_detector(file: Path, count: int) -> None:
    """Write a graph that returns `count` boxes for any image: [1, count, 6] of corners, score and class."""
    rng = np.random.default_rng(0)
    corners = rng.uniform(0, 600, (count, 2))
    rows = np.hstack([corners, corners + 40, np.linspace(0.99, 0.01, count)[:, None], np.zeros((count, 1))])
    weights = [
        numpy_helper.from_array(rows[None].astype(np.float32), "rows"),
        numpy_helper.from_array(np.array(0, np.float32), "nothing"),
        numpy_helper.from_array(np.array([1, 2, 3], np.int64), "axes"),
        numpy_helper.from_array(np.array([0, 1, 1], np.int64), "shape"),
    ]
    nodes = [
        helper.make_node("ReduceMean", ["images"], ["mean"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Reshape", ["mean", "shape3"], ["column"]),
        helper.make_node("Mul", ["column", "nothing"], ["zero"]),
        helper.make_node("Add", ["rows", "zero"], ["output0"]),
    ]
    weights = [weight for weight in weights if weight.name not in ("axes", "shape")]
    weights.append(numpy_helper.from_array(np.array([1, 1, 1], np.int64), "shape3"))
    graph = helper.make_graph(
        nodes,
        "finder",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, [1, 3, 640, 640])],
        [helper.make_tensor_value_info("output0", TensorProto.FLOAT, [1, count, 6])],
        weights,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), file)
