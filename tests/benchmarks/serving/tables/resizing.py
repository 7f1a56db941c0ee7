"""Measure what accurate pixels cost, and what cheaper ones change."""

import statistics
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.server.process_setup import configure_process
from fixtures.scenes import DETECT, make_scene
from tasks.inference.limits import Limits
from tests.benchmarks.serving.processes import ROOT
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import IMAGE_SIZES, Workload, copy_model, encode_scene
from tests.support.data.requests import file_input, request

_SETTINGS: Mapping[str, Mapping[str, Any]] = {
    "default": {},
    "antialias false": {"antialias": False},
    "reduced_decode": {"reduced_decode": True},
    "both": {"antialias": False, "reduced_decode": True},
}
_LABELS = 1000


def resizing(workload: Workload, rounds: int, scenes: int) -> Section:
    """Compare the scores of a classifier, and the CPU of the small model, with cheaper pixels."""
    configure_process()
    folder = workload.folder.parent / "resizing"
    sources = {"classifier": ROOT / "fixtures" / "models" / "classifier", "small": workload.folder / "small"}
    models = {
        (name, settings): _load(copy_model(source, folder / f"{name}-{number}", _changes(name, changes)))
        for name, source in sources.items()
        for number, (settings, changes) in enumerate(_SETTINGS.items())
    }
    rows: list[list[Cell]] = []
    for size, (width, height) in IMAGE_SIZES.items():
        images = _scenes(scenes, width, height)
        scores = {name: np.array([_scores(models["classifier", name], data) for data in images]) for name in _SETTINGS}
        cpu: dict[str, list[float]] = {name: [] for name in _SETTINGS}
        for _ in range(rounds):
            for name, seconds in cpu.items():
                started = time.process_time()
                for data in images[:50]:
                    _predict(models["small", name], data)
                seconds.append((time.process_time() - started) * 1000 / len(images[:50]))
        reference = scores["default"]
        for name, found in scores.items():
            difference = np.abs(found - reference)
            labels = int(np.sum(found.argmax(axis=1) != reference.argmax(axis=1)))
            shown = [f"{difference.max():.4f}", f"{difference.mean():.4f}", f"{labels} of {len(images)}"]
            rows.append([size, name, *shown, statistics.median(cpu[name])])
    about = (
        f"Scores of the fixture classifier, which sees 64x64 pixels, on {scenes} generated JPEG scenes of each size: "
        "the largest and mean difference of a class from the default, and how often the best class is another. CPU "
        "milliseconds of the small model, which sees 224x224 pixels, to decode, resize, run and read an image without "
        "a server: the median of the rounds."
    )
    columns = ["image", "preprocessing", "largest difference", "mean difference", "best label differs", "CPU ms"]
    return Section(title="Cost of accurate pixels", about=about, columns=columns, rows=rows)


def _changes(name: str, preprocessing: Mapping[str, Any]) -> Mapping[str, Any]:
    scored = {"parameters": {"top_k": _LABELS}} if name == "classifier" else {}
    return {**scored, **({"preprocessing": preprocessing} if preprocessing else {})}


def _load(folder: Any) -> Servable:
    (source,) = model_at(folder)
    return load(source)


def _scenes(count: int, width: int, height: int) -> Sequence[bytes]:
    rng = np.random.default_rng(40_000)
    return [encode_scene(make_scene(rng, DETECT, width, height)) for _ in range(count)]


def _predict(servable: Servable, data: bytes) -> Any:
    tensor = file_input(data, name=servable.inputs[0].name)
    return servable.predict(request(tensor), Limits()).outputs[0].predictions[0]


def _scores(servable: Servable, data: bytes) -> NDArray[np.float64]:
    by_label = {record.label: record.score for record in _predict(servable, data).records()}
    return np.array([by_label[label] for label in sorted(by_label)], np.float64)
