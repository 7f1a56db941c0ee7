"""Measure tiles: ``python -m tests.benchmarks.tiling [--sahi SITE_PACKAGES] [--scenes N]``."""

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.plugins.tiling.merging import TileMerger
from app.plugins.tiling.parameters import TilingSettings
from app.plugins.tiling.tiles import Tile, tiles_of
from tasks.object_detection import DetectionInput, DetectionParameters, Detections
from tasks.vision.image import Image
from tests.benchmarks.tiling.figures import SIZES, Compared, average_precision, compare, f1
from tests.benchmarks.tiling.sahi_peer import merge, predictor
from tests.benchmarks.tiling.scenes import DrawnScene, Pixels, SimulatedScene, draw_scene, simulated_scenes
from tests.support.data.requests import pixel_input, predict
from tests.support.servers.server_process import ROOT

_TILE, _OVERLAP, _THRESHOLD = 192, 0.2, 0.3
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
    console.print("CPU of a tile, and of an image of its size: {:.2f} and {:.2f} ms".format(*_cost_of_a_tile()))


def _served(merge: str = "join") -> Servable:
    """Return the fixture detector; requests with `tile` get tiles."""
    (source,) = model_at(ROOT / "fixtures" / "models" / "detector")
    tiling = msgspec.convert({"size": False, "merge": merge, "max_tiles": 1000}, TilingSettings)
    values = {name: getattr(source.settings, name) for name in source.settings.__struct_fields__}
    settings = registry().model_settings(**{**values, "tiling": tiling})
    return load(msgspec.structs.replace(source, settings=settings))


def _found(servable: Servable, pixels: Pixels, **parameters: object) -> Detections:
    (prediction,) = predict(servable, pixel_input(pixels, score_threshold=_THRESHOLD, **parameters))
    return prediction


def _precision(count: int, sahi: Path | None) -> Table:
    table = Table("answer", *(f"AP50 {size}" for size in SIZES), "F1", "CPU s/image", title="Fixture detector")
    scenes = [draw_scene(seed) for seed in range(count)]
    join, nms = _served(), _served("nms")
    answers: dict[str, Callable[[Pixels], Detections]] = {
        "whole image": lambda pixels: _found(join, pixels),
        "tiles, join": lambda pixels: _found(join, pixels, tile=_TILE, overlap=_OVERLAP),
        "tiles, nms": lambda pixels: _found(nms, pixels, tile=_TILE, overlap=_OVERLAP),
    }
    if sahi is not None:
        answers["tiles, SAHI"] = _sahi(sahi, join)
    for name, answer in answers.items():
        started = time.process_time()
        predictions = [answer(scene.pixels) for scene in scenes]
        seconds = (time.process_time() - started) / count
        images = [_compared(prediction, scene) for prediction, scene in zip(predictions, scenes, strict=True)]
        figures = [*(average_precision(images, size) for size in SIZES), f1(images, 0.5)]
        table.add_row(name, *(f"{figure:.3f}" for figure in figures), f"{seconds:.2f}")
    return table


def _compared(found: Detections, scene: DrawnScene) -> Compared:
    return compare(found.labels, found.scores, found.boxes, scene.labels, scene.boxes)


def _sahi(site_packages: Path, servable: Servable) -> Callable[[Pixels], Detections]:
    def detect(pixels: Pixels) -> Any:
        found = _found(servable, pixels)
        return found.boxes, found.scores, found.labels

    run = predictor(site_packages, detect, servable.description.labels)

    def answer(pixels: Pixels) -> Detections:
        boxes, scores, labels = run(pixels, _TILE, _OVERLAP)
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
        (tile, 12.0) for tile in tiles_of(scene.width, scene.height, (640, 640), _OVERLAP)
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
    return compare(["object"] * len(boxes), scores, boxes, ["object"] * len(scene.boxes), scene.boxes)


def _cost_of_a_tile() -> tuple[float, float]:
    """Return the CPU milliseconds of a tile, and of an image of its size: the best of five rounds in turns."""
    servable, count = _served(), 88
    pixels = np.random.default_rng(1).integers(0, 256, (1200, 1600, 3), np.uint8)
    images = [np.ascontiguousarray(pixels[:_TILE, left : left + _TILE]) for left in range(0, 14 * count, 14)]
    rounds: list[tuple[float, float]] = []
    for _ in range(5):
        started = time.process_time()
        _found(servable, pixels, tile=_TILE, overlap=_OVERLAP)
        between = time.process_time()
        for image in images:
            _found(servable, image)
        rounds.append((between - started, time.process_time() - between))
    tiles, single = map(min, zip(*rounds, strict=True))
    # The whole image is one more.
    return 1000 * tiles / (count + 1), 1000 * single / count


if __name__ == "__main__":
    main()
