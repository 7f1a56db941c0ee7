"""``charioteer drift``, run as a user runs it."""

import importlib
import json
import sqlite3
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import cv2
import msgspec
import PIL.Image
import pytest

from app.plugins.drift.baseline import Baseline, read_baseline, write_baseline
from app.plugins.drift.command import drift
from app.plugins.drift.measurement import BUNDLED
from app.plugins.drift.service import load_embedder
from app.plugins.recording.export.parquet import write_parquet
from app.plugins.recording.inference import RecordedImage, RecordedInference
from app.plugins.recording.stores.rows import to_rows
from app.plugins.recording.stores.sqlite_store import SqliteStore
from tests.support.data.drift_samples import sample
from tests.support.data.recorded_rows import recorded_inference

WORLD: Any = importlib.import_module("fixtures.drift_world")
MODELS = Path(__file__).parents[3] / "fixtures" / "models"


def write_images(path: Path, images: Any) -> Path:
    """Write the images as files, with a folder for each camera."""
    for index, image in enumerate(images):
        (path / image.camera).mkdir(parents=True, exist_ok=True)
        cv2.imwrite(str(path / image.camera / f"{index:03}.png"), image.pixels[..., ::-1])
    return path


@cache
def photos() -> Sequence[Any]:
    return WORLD.camera_images(1, 75)


def run(*arguments: str | Path) -> int:
    """Run the command and return its exit status."""
    try:
        drift([str(argument) for argument in arguments], result_action="return_value")
    except SystemExit as exit_error:
        return exit_error.code if isinstance(exit_error.code, int) else 0
    return 0


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a baseline of 160 images."""
    root = tmp_path_factory.mktemp("baseline")
    assert run("baseline", write_images(root / "good", WORLD.camera_images(1, 160)), "--out", root / "b.npz") == 0
    return root / "b.npz"


@pytest.mark.slow
def test_check_reports_drift_of_one_blurred_camera(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:  # fmt: skip
    images = WORLD.changed(WORLD.camera_images(2, 160), WORLD.blurred, 1, "east")
    production = write_images(tmp_path / "<script>", images)
    reports = "--json", tmp_path / "r.json", "--html", tmp_path / "r.html"
    assert run("check", baseline, production, *reports, "--fail-on-drift") == 1
    assert "Drift was found" in capsys.readouterr().out
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert report["drifted"] is True
    assert all(outlier["id"].startswith("east") for outlier in report["outliers"])
    page = (tmp_path / "r.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("data:image/jpeg;base64,") == 12
    assert page.count("<svg") == len(report["numbers"]) == 14


@pytest.mark.slow
def test_check_reports_no_drift_for_the_same_distribution(
    baseline: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("check", baseline, write_images(tmp_path / "same", WORLD.camera_images(3, 100)), "--fail-on-drift") == 0
    assert "No drift was found" in capsys.readouterr().out


def test_check_names_a_new_and_a_vanished_camera(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Give images of all places to each camera, so that only their names tell production from the baseline."""
    images = [photo.pixels for photo in photos()]
    good, now = (
        write_images(
            tmp_path / camera,
            [WORLD.CameraImage(pixels, ("north", "east", camera)[index % 3]) for index, pixels in enumerate(shown)],
        )
        for camera, shown in (("west", images[:39]), ("lobby", images[39:]))
    )
    baseline, report, page = (tmp_path / name for name in ("b.npz", "report.json", "page.html"))
    assert run("baseline", good, "--out", baseline, "--no-embeddings") == 0
    assert run("check", baseline, now, "--json", report, "--html", page, "--fail-on-drift") == 1
    output = capsys.readouterr().out
    assert "folder: new lobby; gone west" in output
    assert "Drift was found" in output
    drifted = [test for test in json.loads(report.read_bytes())["tests"] if test["drifted"]]
    assert [(test["name"], test["where"]) for test in drifted] == [("mix", "folder: new lobby; gone west")]
    assert "lobby <small>not in the baseline</small>" in page.read_text()
    assert run("check", baseline, good, "--fail-on-drift") == 0
    assert "No drift was found" in capsys.readouterr().out


@pytest.mark.slow
def test_baseline_with_a_model_includes_its_predictions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = write_images(tmp_path / "good", photos()[:40])
    (good / "broken.png").write_bytes(b"no image")
    out = tmp_path / "b.npz"
    assert run("baseline", good, "--out", out, "--model", MODELS / "classifier", "--no-embeddings") == 0
    captured = capsys.readouterr()
    assert "40 images, 17 numbers, 0 of an embedding" in captured.out
    assert "1 image not readable as images" in captured.err
    assert run("check", out, good, "--model", MODELS / "classifier") == 0
    assert "chi-square" in capsys.readouterr().out


def recorded(number: int, **changes: Any) -> RecordedInference:
    image, records = RecordedImage(digest="0" * 64, width=8, height=8, size=1), [{"label": "cat", "score": number / 50}]
    return recorded_inference(str(number), **{"started": number, "image": image, "records": records, **changes})


def write_recordings(folder: Path, *others: RecordedInference) -> Path:
    """Write 40 recordings of a detector, or as many less as there are others, and these."""
    inferences = [*others, *map(recorded, range(len(others), 40))]
    path = folder / "recorded.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, inferences)))
    return path


def test_trials_in_a_store_are_left_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, out = tmp_path / "recorded.db", tmp_path / "b.npz"
    store = SqliteStore(path)
    store.open()
    store.write([to_rows(recorded(number, reason="trial" if number >= 40 else None)) for number in range(60)])
    store.close()
    for options, count in (((), 40), (("--reason", "any"), 60)):
        assert run("baseline", path, "--out", out, *options) == 0
        assert f"{count} images" in capsys.readouterr().out


def test_recordings_of_one_model_are_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = recorded(1, model="classifier", task_type="IMAGE_CLASSIFICATION")
    store, out = write_recordings(tmp_path, recorded(0, image=None), other), tmp_path / "b.npz"
    assert run("baseline", store, "--out", out) == 2
    tasks = "several tasks, IMAGE_CLASSIFICATION, OBJECT_DETECTION: choose one of classifier, detector with"
    assert tasks in capsys.readouterr().err
    assert run("baseline", store, "--out", out, "--recorded-model", "missing") == 2
    assert "There are no recordings of answered image requests of the model 'missing'" in capsys.readouterr().err
    assert run("baseline", store, "--out", out, "--recorded-model", "detector") == 0
    captured = capsys.readouterr()
    assert "38 images, 3 numbers, 0 of an embedding" in captured.out
    assert "1 image of no image, or explanations" in captured.err
    assert "38 images without their pixels" in captured.err


def test_glob_and_manifest_are_measured_with_their_metadata(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    images = write_images(tmp_path / "images", photos()[:40])
    files = sorted(path.relative_to(tmp_path) for path in images.rglob("*.png"))
    manifest = tmp_path / "list.jsonl"
    lines = [{"image": str(file), "camera": file.parent.name} for file in [*files, Path("missing.png")]]
    manifest.write_text("\n".join(map(json.dumps, lines)))
    assert run("baseline", manifest, "--out", tmp_path / "b.npz", "--no-embeddings") == 0
    captured = capsys.readouterr()
    assert "40 images, 14 numbers" in captured.out
    assert "1 image not readable as images" in captured.err
    assert {values["camera"] for values in read_baseline(tmp_path / "b.npz").sample.metadata} == {
        path.name for path in images.iterdir()
    }
    assert run("check", tmp_path / "b.npz", images / "*" / "*.png", "--limit", "35") == 0
    captured = capsys.readouterr()
    assert "No drift was found" in captured.out
    assert "5 images left out, because there are more than --limit" in captured.err


def test_folder_of_parquet_parts_is_measured_as_recordings_by_a_random_choice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Through a server, the task of an answer without objects is unknown.
    inferences = [recorded(0, records=[], task_type=""), *map(recorded, range(1, 50))]
    for part in range(2):
        with (tmp_path / f"part-{part}.parquet").open("wb") as file:
            write_parquet([inferences[part::2]], file)
    assert run("baseline", tmp_path, "--out", tmp_path / "b.npz", "--limit", "40") == 0
    captured = capsys.readouterr()
    assert "Wrote" in captured.out
    assert "40 images, 3 numbers" in captured.out
    assert "taken, a random choice, because there are more than --limit" in captured.err
    assert run("check", tmp_path / "b.npz", tmp_path) == 0
    assert "No drift was found" in capsys.readouterr().out


@pytest.mark.parametrize("redacted", [{"label": "cat", "score": "[redacted]"}, {"label": "[redacted]", "score": 0.9}])
def test_answers_are_not_compared_where_some_are_redacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], redacted: dict[str, object]
) -> None:
    assert (
        run("baseline", write_recordings(tmp_path, recorded(0, records=[redacted])), "--out", tmp_path / "b.npz") == 2
    )
    error = capsys.readouterr().err
    assert "There is nothing to measure" in error
    assert "1 image with a redacted label or score, so no answer is compared; choose others with --since" in error


def test_recordings_above_the_limit_are_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("baseline", write_recordings(tmp_path), "--out", tmp_path / "b.npz", "--limit", "35") == 0
    captured = capsys.readouterr()
    assert "35 images, 3 numbers" in captured.out.replace("\n", " ")
    assert "35 images taken, the newest, because there are more than --limit" in captured.err.replace("\n", " ")


def test_images_of_too_many_pixels_are_not_called_unreadable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = write_images(tmp_path / "good", photos()[:30])
    PIL.Image.new("1", (8001, 8000)).save(good / "large.png")
    assert run("baseline", good, "--out", tmp_path / "b.npz", "--no-embeddings") == 0
    message = "1 image left out, because of more than 64,000,000 pixels"
    assert capsys.readouterr().err.replace("\n", " ").strip() == message


def test_drift_commands_report_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    baseline = tmp_path / "kept.npz"
    digest = load_embedder(BUNDLED).digest
    write_baseline(baseline, Baseline(sample=sample(40), embedder="embedder.onnx", embedder_digest=digest))
    without_embeddings = tmp_path / "plain.npz"
    write_baseline(without_embeddings, Baseline(sample=sample(40)))
    too_few = write_images(tmp_path / "few", photos()[:4])
    store = tmp_path / "none.db"
    sqlite3.connect(store).close()
    (tmp_path / "empty").mkdir()
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "a.png").write_bytes(b"no image")
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("check", baseline, tmp_path / "nothing"), "There is no folder or file"),
        (("check", baseline, tmp_path / "empty"), "There are no images in"),
        (("check", baseline, too_few), "Expected 30 images at least to measure drift, got 4"),
        (("check", MODELS / "classifier" / "model.onnx", too_few), "is not a baseline"),
        (("check", baseline, too_few, "--embedder", MODELS / "classifier" / "model.onnx"), "is not the embedder"),
        (("baseline", too_few, "--out", tmp_path / "b.npz"), "Expected 30 images"),
        (("baseline", too_few, "--out", tmp_path / "no" / "b.npz"), "there is no folder"),
        (("baseline", too_few, "--embedder", MODELS / "half_plus_two" / "model.onnx"), "to make embeddings with"),
        (("baseline", too_few, "--model", MODELS / "missing"), "missing"),
        (("baseline", store), "charioteer: "),
        (("baseline", store, "--name", "a"), "--name: no effect on recordings"),
        (("baseline", too_few, "--since", "2h"), "--since: no effect on a folder of images"),
        (("baseline", too_few, "--no-embeddings", "--embedder", store), "--embedder: no effect with --no-embeddings"),
        (("check", without_embeddings, too_few, "--embedder", store), "--embedder: no effect on a baseline"),
        (("baseline", too_few, "--model", MODELS / "half_plus_two"), "Expected one of 'x', got 'image'"),
        (("check", baseline, store, "--images", tmp_path / "no"), "Invalid value"),
        (("baseline", tmp_path / "broken"), "; 1 image not readable as images"),
        (("check", baseline, too_few, "--html", tmp_path), "Expected a file to write, got a folder"),
    ]
    for arguments, message in cases:
        assert run(*arguments) == 2, arguments
        assert message in capsys.readouterr().err, arguments
