"""Measure tiles: ``python -m tests.benchmarks.tiling [--sahi SITE_PACKAGES] [--scenes N]``."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from app.plugins.tiling.merging import TileMerger
from app.plugins.tiling.parameters import TilingSettings
from app.plugins.tiling.tiles import Tile, tiles_of
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.image import Image
from tests.benchmarks.tiling.figures import SIZES, Compared, average_precision, compared_boxes, f1
from tests.benchmarks.tiling.measuring import (
    OVERLAP,
    THRESHOLD,
    TILE,
    compare,
    cost_of_a_tile,
    peak_memory,
    predicted,
    served,
)
from tests.benchmarks.tiling.sahi_peer import merge, predictor
from tests.benchmarks.tiling.scenes import DrawnScene, SimulatedScene, draw_scene, simulated_scenes

_SEEDS = range(4)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--sahi", type=Path, help="site-packages of an environment with sahi")
    parser.add_argument("--scenes", type=int, default=6)
    arguments = parser.parse_args()
    console = Console()
    console.print(_precision(arguments.scenes, arguments.sahi))
    console.print(_simulation(arguments.sahi))
    console.print(_costs())


def _precision(count: int, sahi: Path | None) -> Table:
    table = Table("model", "answer", *(f"AP50 {size}" for size in SIZES), "F1", "CPU s/image", title="Fixture models")
    for model in ("detector", "oriented-detector", "segmenter"):
        scenes = [draw_scene(model, seed) for seed in range(count)]
        answers: dict[str, Callable[[DrawnScene], Any]] = {}
        for method in ("join", "nms"):
            servable = served(model, method)
            if not answers:
                answers["whole image"] = lambda scene, servable=servable: predicted(
                    servable, scene.pixels, score_threshold=THRESHOLD
                )
            answers[f"tiles, {method}"] = lambda scene, servable=servable: predicted(
                servable, scene.pixels, score_threshold=THRESHOLD, tile=TILE, overlap=OVERLAP
            )
        if sahi is not None and model == "detector":
            answers["tiles, SAHI"] = _sahi(sahi, model)
        for name, answer in answers.items():
            started = time.process_time()
            predictions = [answer(scene) for scene in scenes]
            seconds = (time.process_time() - started) / count
            images = [compare(prediction, scene) for prediction, scene in zip(predictions, scenes, strict=True)]
            figures = [*(average_precision(images, size) for size in SIZES), f1(images, 0.5)]
            table.add_row(model, name, *(f"{figure:.3f}" for figure in figures), f"{seconds:.2f}")
    return table


def _sahi(site_packages: Path, model: str) -> Callable[[DrawnScene], Detections]:
    servable = served(model)

    def detect(pixels: Any) -> Any:
        found = predicted(servable, pixels, score_threshold=THRESHOLD)
        return found.boxes, found.scores, found.labels

    run = predictor(site_packages, detect, servable.description.labels)

    def answer(scene: DrawnScene) -> Detections:
        boxes, scores, labels = run(scene.pixels, TILE, OVERLAP)
        return Detections(labels=labels, scores=scores, boxes=boxes)

    return answer


def _simulation(sahi: Path | None) -> Table:
    methods = ("nms", "join", *(["SAHI"] if sahi is not None else []))
    titles = [f"{method}{', tiles only' * (not full)}" for full in (True, False) for method in methods]
    table = Table("scene", *titles, title="F1 at IoU 0.5 / 0.75 of an ideal detector, tiles of 640")
    rows: dict[str, list[str]] = {}
    for full in (True, False):
        for method in methods:
            images: dict[str, list[Compared]] = {}
            for seed in _SEEDS:
                for name, scene in simulated_scenes(seed).items():
                    images.setdefault(name, []).append(_simulated(scene, method, seed, sahi, full=full))
            for name, found in images.items():
                rows.setdefault(name, []).append(f"{f1(found, 0.5):.3f} / {f1(found, 0.75):.3f}")
    for name, cells in rows.items():
        table.add_row(name, *cells)
    return table


def _simulated(scene: SimulatedScene, method: Any, seed: int, sahi: Path | None, *, full: bool) -> Compared:
    random = np.random.default_rng(seed)
    image = Image(np.broadcast_to(np.uint8(0), (scene.height, scene.width, 3)))
    parameters = DetectionParameters(score_threshold=0.3, iou_threshold=0.5)
    settings = TilingSettings(merge="none" if method == "SAHI" else method)
    merger = TileMerger((1.0, 1.0), DetectionInput(image, parameters, parameters.score_threshold), settings)
    tiles: Sequence[tuple[Tile, float]] = [
        (tile, 12.0) for tile in tiles_of(scene.width, scene.height, (640, 640), OVERLAP)
    ]
    if full:
        # The whole image is reduced to the size of a tile, so that small objects vanish.
        tiles = [*tiles, (Tile(0, 0, scene.width, scene.height), 12.0 * scene.width / 640)]
    for tile, min_side in tiles:
        boxes, scores = scene.seen(tile, random, min_side)
        merger.add(tile, Detections(labels=["object"] * len(boxes), scores=scores, boxes=boxes))
    result: Any = merger.result()
    boxes, scores = result.boxes, result.scores
    if method == "SAHI" and sahi is not None:
        boxes, scores = merge(sahi, boxes, scores)
    return compared_boxes(["object"] * len(boxes), scores, boxes, ["object"] * len(scene.boxes), scene.boxes)


def _costs() -> Table:
    table = Table("what", "tiles", "without", "ratio", title="Cost")
    for model in ("detector", "oriented-detector", "segmenter"):
        tile, single = cost_of_a_tile(model)
        table.add_row(f"CPU ms, {model}", f"{tile:.2f}", f"{single:.2f}", f"{tile / single:.2f}")
    tiled, whole = peak_memory(1024), peak_memory(0)
    table.add_row("peak MB, JPEG of 64 megapixels", f"{tiled:.0f}", f"{whole:.0f}", f"{tiled / whole:.2f}")
    return table


if __name__ == "__main__":
    main()
