"""``charioteer drift``, as a user runs it."""

import importlib
import json
import sqlite3
from pathlib import Path
from typing import Any

import cv2
import pytest

from app.assembly.drift import embedder_at
from app.cli.drift import drift
from app.drift.baseline import Baseline, write_baseline
from app.drift.embedding import BUNDLED
from tests.support.drift_samples import sample

WORLD: Any = importlib.import_module("fixtures.drift_world")
MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def folder(path: Path, shots: Any) -> Path:
    """The images as files, a folder for each camera."""
    for place, shot in enumerate(shots):
        (path / shot.camera).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path / shot.camera / f"{place:03}.png"), shot.pixels[..., ::-1])
    return path


def run(*arguments: str | Path) -> int:
    """The command's exit status."""
    try:
        drift([str(each) for each in arguments], result_action="return_value")
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A baseline of 160 images."""
    place = tmp_path_factory.mktemp("baseline")
    assert run("baseline", folder(place / "good", WORLD.shots(1, 160)), "--out", place / "b.npz") == 0
    return place / "b.npz"


@pytest.mark.slow
def test_the_blurred_camera_is_found_and_shown(
    kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    shots = WORLD.changed(WORLD.shots(2, 160), WORLD.blurred, 1, "east")
    production = folder(tmp_path / "<script>", shots)
    reports = "--json", tmp_path / "r.json", "--html", tmp_path / "r.html"
    assert run("check", kept, production, "--slice", "folder", *reports, "--fail-on-drift") == 1
    assert "Drift was found" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert report["drifted"] is True
    assert [each["value"] for each in report["slices"] if each["drifted"]] == ["east"]
    assert all(each["id"].startswith("east") for each in report["outliers"])
    page = (tmp_path / "r.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("data:image/jpeg;base64,") == 12
    assert page.count("<svg") == len(report["numbers"]) == 14


@pytest.mark.slow
def test_the_same_is_no_drift(kept: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("check", kept, folder(tmp_path / "same", WORLD.shots(3, 100)), "--fail-on-drift") == 0
    assert "No drift was found" in capsys.readouterr().out


@pytest.mark.slow
def test_a_model_looks_at_them_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = folder(tmp_path / "good", WORLD.shots(1, 40))
    (good / "broken.png").write_bytes(b"no image")
    out = tmp_path / "b.npz"
    assert run("baseline", good, "--out", out, "--model", MODELS / "classifier", "--no-embeddings") == 0
    said = capsys.readouterr()
    assert "40 images, 17 numbers, 0 of an embedding" in said.out
    assert "1 images not readable as images" in said.err
    assert run("check", out, good, "--model", MODELS / "classifier") == 0
    assert "chi-square" in capsys.readouterr().out


def test_what_cannot_be_done_is_a_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept = tmp_path / "kept.npz"
    digest = embedder_at(BUNDLED).digest
    write_baseline(kept, Baseline(sample=sample(40), embedder="embedder.onnx", embedder_digest=digest))
    few = folder(tmp_path / "few", WORLD.shots(1, 4))
    store = tmp_path / "none.db"
    sqlite3.connect(store).close()
    (tmp_path / "empty").mkdir()
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("check", kept, tmp_path / "nothing"), "There is no folder or file"),
        (("check", kept, tmp_path / "empty"), "There are no images in"),
        (("check", kept, few), "Expected 30 images at least to measure drift, got 4"),
        (("check", MODELS / "classifier" / "model.onnx", few), "is not a baseline"),
        (("check", kept, few, "--embedder", MODELS / "classifier" / "model.onnx"), "is not the embedder"),
        (("baseline", few, "--out", tmp_path / "no" / "b.npz"), "Expected 30 images"),
        (("baseline", few, "--embedder", MODELS / "half_plus_two" / "model.onnx"), "to make embeddings with"),
        (("baseline", few, "--model", MODELS / "nobody"), "nobody"),
        (("baseline", store), "charioteer: "),
    ]
    for arguments, said in cases:
        assert run(*arguments) == 2, arguments
        assert said in capsys.readouterr().err, arguments
