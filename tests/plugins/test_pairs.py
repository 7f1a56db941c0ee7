"""Each pair of tiling, calibration, isolation and batching answers as one of the two alone, and so do all four."""

import json
import shutil
import threading
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.assembly.models import load
from app.core.engine.models.servable import Servable
from app.core.engine.scheduling.batching import BatchingRunner
from app.core.engine.scheduling.thread_pool import ThreadPool
from app.plugins.calibration.calibration import Calibration, PlattLine, model_digest, write_calibration
from tasks.inference.limits import Limits
from tasks.inference.response import InferenceOutput
from tasks.vision.image import decode_image
from tests.support.data.requests import pixel_input, request
from tests.support.models.model_folders import source_at
from tests.support.pool_jobs import submit_for
from tests.support.servers.server_process import ROOT

CALIBRATION = Calibration(
    method="platt", line=PlattLine(slope=0.5, intercept=0.6), classes={"red circle": PlattLine(intercept=-1.0)}
)
SCENE = decode_image((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes()).pixels
IMAGES = (SCENE, np.ascontiguousarray(SCENE[:, ::-1]))
TIMEOUT = 60.0
SLOW = pytest.mark.slow


class Detector:
    """The detector of the fixtures with some of the four features; `calls` are the sizes of its batches."""

    def __init__(self, folder: Path, *features: str) -> None:
        shutil.copytree(ROOT / "fixtures" / "models" / "detector", folder)
        settings: dict[str, Any] = {"isolate": "isolation" in features}
        if "tiling" in features:
            settings["tiling"] = {"size": 192}
        if "calibration" in features:
            settings["scores"] = "calibrated"
        (folder / "model-settings.json").write_text(json.dumps(settings))
        source = source_at(folder)
        write_calibration(source, msgspec.structs.replace(CALIBRATION, model_digest=model_digest(source)))
        self.servable: Servable = load(source)
        self.calls: list[int] = []
        if "batching" in features:
            self.servable.runner = BatchingRunner(partial(self._count, self.servable.runner), 2, 1.0)

    def _count(self, runner: Any, items: Sequence[Any]) -> Sequence[Any]:
        self.calls.append(len(items))
        return runner(items)

    def output(self, image: Any, **parameters: Any) -> InferenceOutput:
        (output,) = self.servable.predict(request(pixel_input(image, **parameters)), Limits()).outputs
        return output

    def answers(self, **parameters: Any) -> list[object]:
        """Return the records and output parameters of two requests that run at once, while a third one waits."""
        workers, done = ThreadPool(3, "w"), threading.Event()
        blocker = submit_for(workers, "", partial(done.wait, TIMEOUT))
        try:
            jobs = [submit_for(workers, "m", partial(self.output, image, **parameters)) for image in IMAGES]
            outputs = [job.result(TIMEOUT) for job in jobs]
        finally:
            done.set()
            blocker.result(TIMEOUT)
            workers.close()
        return [msgspec.to_builtins((output.predictions[0].records(), output.parameters)) for output in outputs]


@pytest.mark.parametrize(
    ("feature", "runner"),
    [
        ("tiling", "batching"),
        ("calibration", "batching"),
        pytest.param("tiling", "isolation", marks=SLOW),
        pytest.param("calibration", "isolation", marks=SLOW),
        pytest.param("batching", "isolation", marks=SLOW),
    ],
)
def test_runner_of_a_model_changes_no_answer(tmp_path: Path, feature: str, runner: str) -> None:
    alone, both = Detector(tmp_path / "alone", feature), Detector(tmp_path / "both", feature, runner)
    expected = alone.answers(score_threshold=0.3)
    assert both.answers(score_threshold=0.3) == expected
    # Requests share calls only in batches.
    assert {2} == {*both.calls} if "batching" in (feature, runner) else not both.calls
    assert expected != Detector(tmp_path / "plain").answers(score_threshold=0.3) or feature == "batching"


@pytest.mark.parametrize("threshold", [0.0, 0.3, 0.6])
def test_merged_scores_of_tiles_are_calibrated(tmp_path: Path, threshold: float) -> None:
    tiled = Detector(tmp_path / "tiled", "tiling")
    raw: Any = tiled.output(SCENE, score_threshold=CALIBRATION.raw_threshold(threshold)).predictions[0]
    probabilities = CALIBRATION.probabilities(raw.labels, raw.scores).astype(np.float32)
    output = Detector(tmp_path / "both", "tiling", "calibration").output(SCENE, score_threshold=threshold)
    found: Any = output.predictions[0]
    assert output.parameters == {"tiles": 12}
    expected = sorted(
        (-probability, label, *box)
        for probability, label, box in zip(probabilities.tolist(), raw.labels, raw.boxes.tolist(), strict=True)
        if probability >= threshold
    )
    rows = zip(found.scores.tolist(), found.labels, found.boxes.tolist(), strict=True)
    assert sorted((-score, label, *box) for score, label, box in rows) == expected
    assert expected


@SLOW
def test_all_four_answer_as_the_two_steps(tmp_path: Path) -> None:
    steps = Detector(tmp_path / "steps", "tiling", "calibration")
    every = Detector(tmp_path / "every", "tiling", "calibration", "isolation", "batching")
    assert every.answers(score_threshold=0.3) == steps.answers(score_threshold=0.3)
    assert {*every.calls} == {2}
