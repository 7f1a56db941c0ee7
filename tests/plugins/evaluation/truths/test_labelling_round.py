"""The round of labelling in docs/feedback.md works as it is written."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import cv2
import httpx
import numpy as np
import PIL.Image
import pytest

from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader, open_recordings
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.shadow.rows import read_compared
from fixtures.scenes import COLORED_SHAPES, DETECT, compose
from tests.support.polling import wait_until
from tests.support.servers.server_process import ROOT, run_server

PAGE = (ROOT / "docs" / "feedback.md").read_text()
ROUND = PAGE[PAGE.index("## A round of labelling") : PAGE.index("## Truths")]
ADDRESS = "http://127.0.0.1:8080"
IMAGES = 40


def run_block(script: str, folder: Path, environment: Mapping[str, str]) -> None:
    completed = subprocess.run(
        ["sh", "-e"], input=script, cwd=folder, env=environment, capture_output=True, text=True, timeout=300
    )
    assert completed.returncode == 0, completed.stdout + completed.stderr


def write_labelled(folder: Path) -> None:
    """Write photographs with drawn objects, and the objects as COCO."""
    folder.mkdir()
    rng, photo = np.random.default_rng(5), np.asarray(PIL.Image.open(ROOT / "fixtures" / "images" / "photo.jpg"))
    images: list[object] = []
    annotations: list[object] = []
    for number in range(1, IMAGES + 1):
        scene = compose(rng, photo.copy(), DETECT)
        height, width, _ = scene.image.shape
        cv2.imwrite(str(folder / f"{number}.png"), scene.image[..., ::-1])
        images.append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
        for item in scene.items:
            left, top, right, bottom = item.box
            place = {"image_id": number, "bbox": [left, top, right - left, bottom - top], "iscrowd": 0}
            category = COLORED_SHAPES.index(item.label) + 1
            annotations.append({"id": len(annotations) + 1, "category_id": category, **place})
    categories = [{"id": number, "name": label} for number, label in enumerate(COLORED_SHAPES, 1)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "labels.json").write_text(json.dumps(content))


@pytest.mark.slow
def test_round_of_labelling_works_as_written(tmp_path: Path) -> None:
    prepare, serve, *blocks = re.findall(r"^```sh\n(.*?)^```$", ROUND, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 8
    (tmp_path / "fixtures").symlink_to(ROOT / "fixtures")
    write_labelled(tmp_path / "labelled")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT)}
    run_block(prepare, tmp_path, environment)
    words = shlex.split(serve)
    assert words[:2] == ["charioteer", "serve"]
    with run_server(*words[2:], environment=environment, cwd=tmp_path) as server:
        for block in blocks:
            if "charioteer shadow" in block:
                # The shadow version answers after the clients, and its answers are written when it is idle.
                store = RecordingReader(parse_dsn(str(tmp_path / "recorded.db")))
                wait_until(lambda store=store: len(read_compared(store)) == IMAGES)
            run_block(block.replace(ADDRESS, server.address), tmp_path, environment)
        served = httpx.get(f"{server.address}/v2/models/detector", timeout=60).json()
    assert served["versions"] == ["2"]
    labels = json.loads((tmp_path / "labels.json").read_text())
    labelled = open_recordings(str(tmp_path / "recorded.db")).page(InferenceQuery(truth="yes"), 100).inferences
    verdicts = {inference.id: inference.truth and inference.truth.verdict for inference in labelled}
    assert len(verdicts) > IMAGES
    assert {verdicts[image["inference"]] for image in labels["images"]} == {"right"}
    assert (tmp_path / "training" / "data.yaml").is_file()
    assert "detector" in (tmp_path / "report.html").read_text()
