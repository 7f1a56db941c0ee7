"""Choice of images for annotators that differ from one another."""

from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from app.core.settings.command_options import VALUES
from app.plugins.feedback.selection.diverse import cover
from app.plugins.feedback.settings import PickOptions
from app.plugins.recording.images import ImageFile, ImageFolder
from app.plugins.recording.inference import RecordedImage
from tests.plugins.feedback.truths.recorded import detection
from tests.support.command_line import charioteer
from tests.support.data.recorded_rows import write_store


def test_farthest_rows_come_first_and_low_scores_decide_between_equal_ones() -> None:
    rows = np.array([[0, 0], [0.1, 0], [10, 0], [10, 0.1], [5, 9]], np.float32)
    scores = np.array([0.9, 0.1, 0.8, 0.7, 0.5])
    assert cover(rows, scores, 3) == [1, 4, 3]
    assert sorted(cover(rows, scores, 9)) == [0, 1, 2, 3, 4]
    same = np.zeros((4, 2), np.float32)
    assert cover(same, np.array([0.4, 0.3, 0.1, 0.2]), 3) == [2, 3, 1]


def test_radius_is_at_most_twice_the_best_one() -> None:
    rng = np.random.default_rng(0)
    centres = np.array([[0, 0], [9, 0], [0, 9], [9, 9]])
    rows = (centres[rng.integers(0, 4, 200)] + rng.normal(size=(200, 2)) * 0.1).astype(np.float32)
    chosen = cover(rows, rng.random(200), 4)
    corners = np.rint(rows[list(chosen)] / 9).astype(int)
    assert {(int(x), int(y)) for x, y in corners} == {(0, 0), (1, 0), (0, 1), (1, 1)}


@pytest.mark.slow
def test_command_picks_images_that_look_different(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The command runs in this process, and its options must not stay.
    monkeypatch.setitem(VALUES, PickOptions, PickOptions())
    folder = ImageFolder(tmp_path / "images", durable=False)
    recorded: list[Any] = []
    for number, colour in enumerate([(0, 0, 255), (0, 0, 250), (0, 0, 245), (255, 255, 0)]):
        png = cv2.imencode(".png", np.full((48, 64, 3), colour, np.uint8))[1].tobytes()
        digest = f"{number:064x}"
        folder.write([ImageFile(digest, png)])
        image = RecordedImage(digest=digest, width=64, height=48, size=len(png), kept=True)
        recorded += [detection(f"{number}", image=image), detection(f"{number}-again", image=image)]
    recorded.append(detection("unstored"))
    store = write_store(tmp_path / "store.db", *recorded)
    options = ["--pick", "2", "diverse", "--images", str(tmp_path / "images"), "--to", str(tmp_path / "a.jsonl")]
    completed = charioteer("inferences", store, *options)
    assert completed.returncode == 0, completed.stderr
    assert "1 image left out: not stored, or not readable" in completed.stderr
    lines = (tmp_path / "a.jsonl").read_text().splitlines()
    assert len(lines) == 2
    assert any('"id":"3-again-0-0"' in line for line in lines)
