"""Compare ONNX Runtime and OpenVINO by precision: cost of the model, and agreement of the answers with fp32."""

import shutil
import statistics
import time
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path

import numpy as np

from app.clients.protocol import Records
from app.core.assembly.discovery import model_at
from app.core.runtimes.onnxruntime.loading import open_session
from app.core.runtimes.onnxruntime.session import GraphSession
from app.core.settings.model import ModelSource
from app.plugins.evaluation.agreement import compare_answers
from app.plugins.evaluation.dataset import Item
from app.plugins.evaluation.model import local_predictor
from app.plugins.openvino.session import OpenVinoSession
from app.plugins.tuning.candidates import Candidate, with_candidate
from app.plugins.tuning.quantization import quantize
from fixtures.scenes import CLASSIFY, DETECT, ORIENT, SEGMENT, Recipe, make_scenes
from tasks.inference.limits import Limits
from tests.benchmarks.serving.processes import ROOT
from tests.benchmarks.serving.section import Cell, Section
from tests.benchmarks.serving.workload import Workload, encode_scene

_RECIPES = {"classifier": CLASSIFY, "detector": DETECT, "oriented-detector": ORIENT, "segmenter": SEGMENT}
_CANDIDATES = [
    Candidate(f"{runtime} {precision}", {"runtime": runtime, "precision": precision})
    for precision, names in (
        ("fp32", ("onnxruntime", "openvino")),
        ("bf16", ("openvino",)),
        ("int8", ("onnxruntime", "openvino")),
    )
    for runtime in names
]
_COLUMNS = ["model", "runtime", "precision", "CPU ms", "ratio", "agreement", "least IoU", "score difference"]
_SEED = 30_000


def runtimes(workload: Workload, rounds: int, calls: int, scenes: int) -> Section:
    """Compare the runtimes on fixture models, with answers, and on the models of the workload, without."""
    rows: list[list[Cell]] = []
    folder = workload.folder.parent / "runtimes"
    for name in (*_RECIPES, *workload.megaflops):
        recipe = _RECIPES.get(name)
        images = _images(folder / f"{name}-images", recipe, scenes) if recipe else workload.images["vga"].parent
        files = sorted(images.glob("*.jpg"))
        model = shutil.copytree((ROOT / "fixtures" / "models" if recipe else workload.folder) / name, folder / name)
        rows += _rows(model, files, rounds, calls, with_answers=recipe is not None)
    versions = f"ONNX Runtime {version('onnxruntime')}, OpenVINO {version('openvino')}"
    about = (
        f"CPU milliseconds of the model for one image, on one thread: the median of {rounds * calls} calls in "
        f"{rounds} rounds, in which the set-ups take turns. The ratio is to ONNX Runtime in fp32. Agreement is the "
        f"share of equal labels, or of objects in place, with an IoU of at least 0.9, on {scenes} generated "
        f"scenes. Small and medium have random weights, so their answers mean nothing. {versions}."
    )
    return Section(title="Runtimes and precisions", about=about, columns=_COLUMNS, rows=rows)


def _rows(folder: Path, files: Sequence[Path], rounds: int, calls: int, *, with_answers: bool) -> list[list[Cell]]:
    (source,) = model_at(folder)
    quantized = folder.with_name(f"{folder.name}-int8")
    quantize(source, files, quantized, max_changed=1)
    (int8,) = model_at(quantized)
    sources = [with_candidate(int8 if "int8" in item.name else source, item) for item in _CANDIDATES]
    times = _times([_session(item) for item in sources], rounds, calls)
    items = [Item(id=str(file), image=file, width=640, height=480) for file in files[len(files) // 2 :]]
    rows: list[list[Cell]] = []
    expected: Mapping[str, Records] = {}
    for candidate, candidate_source, milliseconds in zip(_CANDIDATES, sources, times, strict=True):
        row: list[Cell] = [folder.name, *candidate.name.split(), milliseconds, milliseconds / times[0]]
        if with_answers:
            predict = local_predictor(candidate_source, {}, Limits())
            records = {item.id: predict(item, item.image.read_bytes()) for item in items}
            expected = expected or records
            found = compare_answers(items, expected, records)
            least = None if found.min_iou is None else f"{found.min_iou:.3f}"
            row += [f"{found.score:.4f}", least, f"{found.score_difference:.3f}"]
        rows.append([*row, *[None] * (len(_COLUMNS) - len(row))])
    return rows


def _session(source: ModelSource) -> GraphSession:
    return OpenVinoSession(source) if source.settings.runtime == "openvino" else open_session(source)


def _times(sessions: list[GraphSession], rounds: int, calls: int) -> list[float]:
    """Return the median CPU time of a call of each session, in milliseconds."""
    (spec,) = sessions[0].inputs
    shape = [1 if side == -1 else side for side in spec.shape]
    feeds = {spec.name: np.random.default_rng(0).random(shape, np.float32)}
    times: list[list[float]] = [[] for _ in sessions]
    for _ in range(rounds):
        for session, measured in zip(sessions, times, strict=True):
            for _ in range(5):
                session.run(feeds)
            for _ in range(calls):
                started = time.process_time()
                session.run(feeds)
                measured.append((time.process_time() - started) * 1000)
    return [statistics.median(measured) for measured in times]


def _images(folder: Path, recipe: Recipe, count: int) -> Path:
    """Write scenes as JPEG: `count` to calibrate, and as many to compare."""
    folder.mkdir(parents=True)
    for number, scene in enumerate(make_scenes(_SEED, recipe, 2 * count)):
        (folder / f"{number:04}.jpg").write_bytes(encode_scene(scene))
    return folder
