"""Print the calibration error of demo models on many splits: ``python -m tests.benchmarks.calibration`` (a minute)."""

import argparse
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from rich.console import Console
from rich.table import Table

from app.plugins.evaluation.answers import EvaluatedItem, parse_records
from app.plugins.evaluation.calibrating import events_of, fit, in_first_half, measure
from app.plugins.evaluation.dataset import Item, LabelledObject
from app.public_api.in_process import InProcessModel
from fixtures.scenes import CLASSIFY, DETECT, Scene, make_scenes
from tasks.task import TaskType

_MODELS = Path(__file__).parents[2] / "fixtures" / "models"
_SPLITS = 20


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scenes", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    splits = Table("model", "scores", "ECE", "Brier", "splits with lower ECE", "with lower Brier")
    splits.title = f"means of {_SPLITS} splits of {options.scenes} scenes"
    classifier, detector = (CLASSIFY, TaskType.IMAGE_CLASSIFICATION), (DETECT, TaskType.OBJECT_DETECTION)
    for name, (recipe, task) in {"classifier": classifier, "detector": detector}.items():
        for row in _split(name, task, make_scenes(options.seed, recipe, options.scenes)):
            splits.add_row(*row)
    Console(width=140).print(splits)


def _split(name: str, task: TaskType, scenes: Iterable[Scene]) -> Sequence[Sequence[str]]:
    model = InProcessModel(_MODELS / name)
    results = [_result(model, task, scene, index) for index, scene in enumerate(scenes)]
    names = sorted({found.label for result in results for found in (*result.item.objects, *result.predictions)})
    figures: dict[str, list[tuple[float, float]]] = {"before": [], "after": []}
    for split in range(_SPLITS):
        halves: tuple[list[EvaluatedItem], list[EvaluatedItem]] = [], []
        for result in results:
            halves[not in_first_half(bytes([split]) + result.item.id.encode())].append(result)
        calibration = fit(halves[0], names, task)
        for scores, used in (("before", None), ("after", calibration)):
            figures[scores].append(measure(events_of(halves[1], names, task, used)))
    before, after = np.array(figures["before"]), np.array(figures["after"])
    better = [f"{int(column.sum())} of {_SPLITS}" for column in (after < before).T]
    return [
        (name, "before", *(f"{mean:.4f}" for mean in before.mean(axis=0)), "", ""),
        (name, "after", *(f"{mean:.4f}" for mean in after.mean(axis=0)), *better),
    ]


def _result(model: InProcessModel, task: TaskType, scene: Scene, index: int) -> EvaluatedItem:
    height, width = scene.image.shape[:2]
    if task.returns == "objects":
        objects = tuple(LabelledObject(label=found.label, box=found.box) for found in scene.items)
        known, parameters = {"objects": objects}, {"score_threshold": 0.001}
    else:
        known, parameters = {"label": scene.items[0].label}, {}
    item = Item(id=str(index), image=Path(str(index)), width=width, height=height, **known)
    records: Any = msgspec.to_builtins(model.ask(scene.image, **parameters))
    return parse_records(records, item, task)


if __name__ == "__main__":
    main()
