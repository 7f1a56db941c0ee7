"""``charioteer drift``, run as a user runs it."""

import importlib
import io
import json
import sqlite3
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import cache
from itertools import cycle
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


def run(*arguments: str | Path, status: int = 0) -> str:
    """Run the command, check its exit status, and return its output and its messages in one line."""
    with redirect_stdout(io.StringIO()) as output, redirect_stderr(output):
        try:
            code = drift([str(argument) for argument in arguments], result_action="return_value")
        except SystemExit as stop:
            code = stop.code
    text = output.getvalue().replace("\n", " ")
    assert (code or 0) == status, text
    return text


@pytest.fixture(scope="module")
def baseline(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a baseline of 100 images."""
    root = tmp_path_factory.mktemp("baseline")
    run("baseline", write_images(root / "good", WORLD.camera_images(1, 100)), "--out", root / "b.npz")
    return root / "b.npz"


def test_names_that_are_not_utf8_are_reported_with_escapes(tmp_path: Path) -> None:
    folder = write_images(tmp_path / "images", photos()[:30])
    for camera in list(folder.iterdir()):
        camera.rename(f"{camera}\udcfe")
    folder = folder.rename(f"{folder}\udcff")
    run("baseline", folder, "--out", tmp_path / "b.npz", "--no-embeddings")
    run("check", tmp_path / "b.npz", folder, "--json", tmp_path / "r.json", "--html", tmp_path / "r.html")
    assert all(entry["folder"].endswith(r"\udcfe") for entry in read_baseline(tmp_path / "b.npz").sample.metadata)


@pytest.mark.slow
def test_check_reports_drift_of_one_blurred_camera(baseline: Path, tmp_path: Path) -> None:
    images = WORLD.changed(WORLD.camera_images(2, 100), WORLD.blurred, 1, "east")
    production = write_images(tmp_path / "<script>", images)
    reports = "--json", tmp_path / "r.json", "--html", tmp_path / "r.html"
    assert "Drift was found" in run("check", baseline, production, *reports, "--fail-on-drift", status=1)
    report = json.loads((tmp_path / "r.json").read_bytes())
    assert report["drifted"] is True
    assert all(outlier["id"].startswith("east") for outlier in report["outliers"])
    page = (tmp_path / "r.html").read_text()
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert page.count("data:image/jpeg;base64,") == 12
    assert page.count("<polyline") == 2 * len(report["numbers"]) == 28


@pytest.mark.slow
def test_check_reports_no_drift_for_the_same_distribution(baseline: Path, tmp_path: Path) -> None:
    images = write_images(tmp_path / "same", WORLD.camera_images(3, 60))
    assert "No drift was found" in run("check", baseline, images, "--fail-on-drift")


def test_check_names_a_new_and_a_vanished_camera(tmp_path: Path) -> None:
    """Give images of all places to each camera, so that only their names tell production from the baseline."""
    images = [photo.pixels for photo in photos()]

    def photos_of(camera: str, shown: Any) -> Path:
        cameras = cycle(("north", "east", camera))
        return write_images(tmp_path / camera, map(WORLD.CameraImage, shown, cameras))

    good, now = photos_of("west", images[:39]), photos_of("lobby", images[39:])
    baseline, report, page = (tmp_path / name for name in ("b.npz", "report.json", "page.html"))
    run("baseline", good, "--out", baseline, "--no-embeddings")
    output = run("check", baseline, now, "--json", report, "--html", page, "--fail-on-drift", status=1)
    assert "folder: new lobby; gone west" in output
    assert "Drift was found" in output
    drifted = [test for test in json.loads(report.read_bytes())["tests"] if test["drifted"]]
    assert [(test["name"], test["where"]) for test in drifted] == [("mix", "folder: new lobby; gone west")]
    assert "<td>lobby (not in the baseline)</td>" in page.read_text()
    assert "No drift was found" in run("check", baseline, good, "--fail-on-drift")


@pytest.mark.slow
def test_baseline_with_a_model_includes_its_predictions(tmp_path: Path) -> None:
    good, out, model = write_images(tmp_path / "good", photos()[:40]), tmp_path / "b.npz", MODELS / "classifier"
    output = run("baseline", good, "--out", out, "--model", model, "--no-embeddings")
    assert "40 images, 17 numbers, 0 of an embedding" in output
    assert "chi-square" in run("check", out, good, "--model", model)


def recorded(number: int, **changes: Any) -> RecordedInference:
    image, records = RecordedImage(digest="0" * 64, width=8, height=8, size=1), [{"label": "cat", "score": number / 50}]
    return recorded_inference(str(number), **{"started": number, "image": image, "records": records, **changes})


def write_recordings(folder: Path, *others: RecordedInference) -> Path:
    """Write 40 recordings of a detector, or as many less as there are others, and these."""
    inferences = [*others, *map(recorded, range(len(others), 40))]
    path = folder / "recorded.jsonl"
    path.write_bytes(b"\n".join(map(msgspec.json.encode, inferences)))
    return path


def test_trials_in_a_store_are_left_out(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "recorded.db")
    store.open()
    store.write([to_rows(recorded(number, reason="trial" if number >= 40 else None)) for number in range(60)])
    store.close()
    command = "baseline", tmp_path / "recorded.db", "--out", tmp_path / "b.npz"
    assert "40 images" in run(*command)
    assert "60 images" in run(*command, "--reason", "any")


def test_recordings_of_one_model_are_measured(tmp_path: Path) -> None:
    other = recorded(1, model="classifier", task_type="IMAGE_CLASSIFICATION")
    command = "baseline", write_recordings(tmp_path, recorded(0, image=None), other), "--out", tmp_path / "b.npz"
    tasks = "several tasks, IMAGE_CLASSIFICATION, OBJECT_DETECTION: choose one of classifier, detector with"
    assert tasks in run(*command, status=2)
    missing = run(*command, "--recorded-model", "missing", status=2)
    assert "There are no recordings of answered image requests of the model 'missing'" in missing
    output = run(*command, "--recorded-model", "detector")
    assert "38 images, 3 numbers, 0 of an embedding" in output
    assert "1 image of no image, or explanations" in output
    assert "38 images without their pixels" in output


def test_glob_and_manifest_are_measured_with_their_metadata(tmp_path: Path) -> None:
    images, manifest, out = tmp_path / "images", tmp_path / "list.jsonl", tmp_path / "b.npz"
    files = sorted(path.relative_to(tmp_path) for path in write_images(images, photos()[:40]).rglob("*.png"))
    lines = [{"image": str(file), "camera": file.parent.name} for file in [*files, Path("missing.png")]]
    manifest.write_text("\n".join(map(json.dumps, lines)))
    output = run("baseline", manifest, "--out", out, "--no-embeddings")
    assert "40 images, 14 numbers" in output
    assert "1 image not readable as images" in output
    cameras = {values["camera"] for values in read_baseline(out).sample.metadata}
    assert cameras == {path.name for path in images.iterdir()}
    output = run("check", out, images / "*" / "*.png", "--limit", "35")
    assert "No drift was found" in output
    assert "5 images left out, because there are more than --limit" in output


def test_folder_of_parquet_parts_is_measured_as_recordings_by_a_random_choice(tmp_path: Path) -> None:
    # Through a server, the task of an answer without objects is unknown.
    inferences = [recorded(0, records=[], task_type=""), *map(recorded, range(1, 50))]
    for part in range(2):
        with (tmp_path / f"part-{part}.parquet").open("wb") as file:
            write_parquet([inferences[part::2]], file)
    output = run("baseline", tmp_path, "--out", tmp_path / "b.npz", "--limit", "40")
    assert "40 images, 3 numbers" in output
    assert "taken, a random choice, because there are more than --limit" in output
    assert "No drift was found" in run("check", tmp_path / "b.npz", tmp_path)


@pytest.mark.parametrize("redacted", [{"label": "cat", "score": "[redacted]"}, {"label": "[redacted]", "score": 0.9}])
def test_answers_are_not_compared_where_some_are_redacted(tmp_path: Path, redacted: dict[str, object]) -> None:
    store = write_recordings(tmp_path, recorded(0, records=[redacted]))
    error = run("baseline", store, "--out", tmp_path / "b.npz", status=2)
    assert "There is nothing to measure" in error
    assert "1 image with a redacted label or score, so no answer is compared; choose others with --since" in error


def test_recordings_above_the_limit_are_noted(tmp_path: Path) -> None:
    output = run("baseline", write_recordings(tmp_path), "--out", tmp_path / "b.npz", "--limit", "35")
    assert "35 images, 3 numbers" in output
    assert "35 images taken, the newest, because there are more than --limit" in output


def test_images_of_too_many_pixels_are_not_called_unreadable(tmp_path: Path) -> None:
    good = write_images(tmp_path / "good", photos()[:30])
    PIL.Image.new("1", (8001, 8000)).save(good / "large.png")
    output = run("baseline", good, "--out", tmp_path / "b.npz", "--no-embeddings")
    assert output.startswith("1 image left out, because of more than 64,000,000 pixels Wrote ")


def test_drift_commands_report_errors(tmp_path: Path) -> None:
    baseline, without_embeddings, store = (tmp_path / name for name in ("kept.npz", "plain.npz", "none.db"))
    digest = load_embedder(BUNDLED).digest
    write_baseline(baseline, Baseline(sample=sample(40), embedder="embedder.onnx", embedder_digest=digest))
    write_baseline(without_embeddings, Baseline(sample=sample(40)))
    few = write_images(tmp_path / "few", photos()[:4])
    (few / "broken.png").write_bytes(b"no image")
    sqlite3.connect(store).close()
    (tmp_path / "empty").mkdir()
    graph, other_graph = (MODELS / name / "model.onnx" for name in ("classifier", "half_plus_two"))
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("check", baseline, tmp_path / "nothing"), "There is no folder or file"),
        (("check", baseline, tmp_path / "empty"), "There are no images in"),
        (("check", baseline, few), "Expected 30 images at least to measure drift, got 4"),
        (("check", baseline, few), "; 1 image not readable as images"),
        (("check", graph, few), "is not a baseline"),
        (("check", baseline, few, "--embedder", graph), "is not the embedder"),
        (("baseline", few, "--out", tmp_path / "no" / "b.npz"), "there is no folder"),
        (("baseline", few, "--embedder", other_graph), "to make embeddings with"),
        (("baseline", few, "--model", MODELS / "missing"), "missing"),
        (("baseline", store), "charioteer: "),
        (("baseline", store, "--name", "a"), "--name: no effect on recordings"),
        (("baseline", few, "--since", "2h"), "--since: no effect on a folder of images"),
        (("baseline", few, "--no-embeddings", "--embedder", store), "--embedder: no effect with --no-embeddings"),
        (("check", without_embeddings, few, "--embedder", store), "--embedder: no effect on a baseline"),
        (("baseline", few, "--model", MODELS / "half_plus_two"), "Expected one of 'x', got 'image'"),
        (("check", baseline, few, "--html", tmp_path), "Expected a file to write, got a folder"),
    ]
    for arguments, message in cases:
        assert message in run(*arguments, status=2), arguments
