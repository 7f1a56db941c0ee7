"""Measure models with OpenVINO in bf16, reduced decoding and OpenCV's resize, against the floor in fp32."""

import statistics
from pathlib import Path

from fixtures.scenes import DETECT, SEGMENT
from tests.benchmarks.serving.accuracy import figures, write_dataset
from tests.benchmarks.serving.cost import Cost, cost, measure_floor, measure_server
from tests.benchmarks.serving.processes import charioteer
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.tables.encodings import chariot
from tests.benchmarks.serving.workload import IMAGE_SIZES, Workload, copy_model

_TUNED = {
    "runtime": "openvino",
    "precision": "bf16",
    "preprocessing": {"reduced_decode": True, "antialias": False},
}
_RECIPES = {"detector": DETECT, "segmenter": SEGMENT}
_MODELS = ("small", "medium", *_RECIPES)
_METRIC = "map_coco"


def tuned(workload: Workload, rounds: int, requests: int, scenes: int) -> Section:
    """Compare the CPU and the metric of plain and tuned models with the floor."""
    folder = workload.folder.parent / "tuned"
    plain = {name: copy_model(workload.model(name).parent, folder / name, {}) for name in _MODELS}
    fast = {name: tune(workload, name, folder / f"{name}-tuned") for name in _MODELS}
    rows: list[list[Cell]] = []
    with charioteer("--model-repository", str(folder)) as server:
        for name in _MODELS:
            for size in IMAGE_SIZES:
                image = workload.image(name, size)
                request, tuned_request = (
                    chariot(server.ports["http"], model, image) for model in (name, f"{name}-tuned")
                )
                costs = cost(
                    rounds,
                    floor=measure_floor(workload.model(name), request.body, requests),
                    plain=measure_server(server, request, requests, 8),
                    tuned=measure_server(server, tuned_request, requests, 8),
                )
                ratios = [show_ratio(costs[kind], costs["floor"]) for kind in ("plain", "tuned")]
                metrics: list[Cell] = [None, None]
                if recipe := _RECIPES.get(name):
                    dataset = write_dataset(
                        folder.parent / f"{name}-{size}" / "data", recipe, IMAGE_SIZES[size], scenes
                    )
                    metrics = [f"{figures(dataset, model[name])[_METRIC]:.4f}" for model in (plain, fast)]
                costs_of_kinds = [result.median for result in costs.values()]
                rows.append([name, size, *costs_of_kinds, *ratios, *metrics])
    about = (
        "CPU milliseconds of a request with 8 connections: of the floor in fp32, of the model without settings, and of "
        "the tuned model, measured in turns. Tuned models run in OpenVINO in bf16, with reduced decoding and OpenCV's "
        "resize. Small and medium have random weights and no metric. Ratios are the median of the "
        f"rounds' ratios, with the lowest and highest. The metric is that of `charioteer evaluate` on {scenes} "
        "generated scenes of this size."
    )
    columns = ["model", "image", "floor", "plain", "tuned", "plain / floor", "tuned / floor"]
    columns += [f"{_METRIC} plain", f"{_METRIC} tuned"]
    return Section(title="Tuned models", about=about, columns=columns, rows=rows)


def tune(workload: Workload, name: str, target: Path) -> Path:
    """Write a tuned copy of a model to the folder `target`, and return it."""
    return copy_model(workload.model(name).parent, target, _TUNED)


def show_ratio(high: Cost, low: Cost) -> str:
    """Return the median of the ratios of the rounds, with the lowest and highest."""
    ratios = high.ratios_to(low)
    return f"{statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
