"""``charioteer evaluate``, run as a user runs it."""

import json
import math
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import fields
from pathlib import Path
from typing import Any

import cv2
import pytest
from cyclopts import App

from app.core.plugins import registry
from app.plugins.evaluation.command import evaluate
from tests.support.data.datasets import coco_annotation, write_coco_dataset, write_image_folder
from tests.support.servers.fake_chariot import fake_chariot
from tests.support.servers.server_process import ROOT, run_server

IMAGES = ROOT / "fixtures" / "images"
CLASSIFIER = str(ROOT / "fixtures" / "models" / "classifier")
TRUTH: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads((IMAGES / "truth.json").read_text())
DETECTION = {"label": "cat", "score": 0.9, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 24}


def run(*arguments: object) -> int:
    """Run the command in this process and return its exit status."""
    try:
        App(default_command=evaluate)([str(argument) for argument in arguments], result_action="return_value")
    except SystemExit as exit_error:
        return int(exit_error.code or 0)
    return 0


def fake_server(answer: Callable[[int], Sequence[Mapping[str, object]] | None]) -> AbstractContextManager[str]:
    """Yield the URL of a fake chariot-v2 server; its n-th answer is `answer(n)`, or 500 for None."""

    def answered(number: int, _: bytes) -> tuple[int, object]:
        records = answer(number)
        return (500, {"detail": "broken"}) if records is None else (200, {"output": records})

    return fake_chariot(answered)


def url_options(url: str, *arguments: object) -> tuple[object, ...]:
    return "--url", url, "--protocol", "chariot-v2", *arguments


def test_reports_are_written_and_a_second_run_sends_no_request(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, requests = write_coco_dataset(tmp_path / "data", [coco_annotation()]), tmp_path / "out", list[int]()

    def answer(number: int) -> Sequence[Mapping[str, object]]:
        requests.append(number)
        return [DETECTION]

    with fake_server(answer) as url:
        assert run(data, *url_options(url, "--out", out, "--slice", "camera", "--json", tmp_path / "r.json")) == 0
        first_output = capsys.readouterr().out
        assert len(requests) == 2
        assert run(data, *url_options(url, "--out", out, "--slice", "camera")) == 0
        assert len(requests) == 2
        assert capsys.readouterr().out == first_output
        assert run(data, *url_options(url, "--out", out, "--parameter", "top_k=7")) == 2
        assert "answers with another parameters; --fresh starts again" in capsys.readouterr().err
        assert run(data, *url_options(url, "--out", out, "--parameter", "top_k=7", "--fresh")) == 0
        assert len(requests) == 4
    assert "OBJECT_DETECTION" in first_output
    report = json.loads((out / "report.json").read_bytes())
    assert (report["images"], report["figures"]["recall"], report["figures"]["precision"]) == (2, 1.0, 0.5)
    assert report["tables"][-1]["title"] != "Slices"
    assert json.loads((tmp_path / "r.json").read_bytes())["tables"][-1]["title"] == "Slices"
    assert b"<!doctype html>" in (out / "report.html").read_bytes()


def test_figure_below_the_minimum_sets_the_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_coco_dataset(tmp_path, [coco_annotation()])
    with fake_server(lambda _: [DETECTION]) as url:
        assert run(data, *url_options(url, "--fail-under", "recall=0.9", "--fail-under", "precision=0.5")) == 0
        assert run(data, *url_options(url, "--fail-under", "recall=0.9", "--fail-under", "precision=0.6")) == 1
        assert "precision is 0.5000, below the minimum 0.6" in capsys.readouterr().err
        assert run(data, *url_options(url, "--fail-under", "speed=1")) == 2
        assert "there is no figure speed; there is map_coco, ap50" in capsys.readouterr().err


def test_failures_are_counted_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_image_folder(tmp_path / "data", {"cat": 5})
    with fake_server(lambda number: None if number == 2 else [{"label": "cat", "score": 1}]) as url:
        assert run(data, *url_options(url, "--concurrency", 1, "--fail-under", "answered=0.9")) == 1
    captured = capsys.readouterr()
    assert "4 of 5 images measured" in captured.out
    assert "not answered cat/1.jpg: HTTP 500: broken" in captured.out
    assert "1 of 5 were not answered" in captured.out
    assert "answered is 0.8000, below the minimum 0.9" in captured.err


def test_limited_run_is_resumed_with_all_images(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data, requests = write_image_folder(tmp_path / "data", {"cat": 5}), list[int]()

    def answer(number: int) -> Sequence[Mapping[str, object]]:
        requests.append(number)
        return [{"label": "cat", "score": 1}]

    with fake_server(answer) as url:
        assert run(data, *url_options(url, "--out", tmp_path / "out", "--limit", 2)) == 0
        assert len(requests) == 2
        output = capsys.readouterr().out
        assert "2 of 2 images measured" in output
        assert "Only the first 2 of 5" in output
        assert run(data, *url_options(url, "--out", tmp_path / "out")) == 0
    assert len(requests) == 5
    assert len((tmp_path / "out" / "predictions.jsonl").read_text().splitlines()) == 6


def test_unreadable_answers_are_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with fake_server(lambda _: [{**DETECTION, "xmax": None}]) as url:
        assert run(write_coco_dataset(tmp_path, [coco_annotation()]), *url_options(url)) == 2
    assert "Not one of 2 answers can be measured; a.jpg: The answer cannot be read: xmax" in capsys.readouterr().err


def test_report_that_cannot_be_written_is_still_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_coco_dataset(tmp_path, [coco_annotation()])
    with fake_server(lambda _: [DETECTION]) as url:
        assert run(data, *url_options(url, "--json", "/dev/full", "--score-threshold", 0.5)) == 2
    captured = capsys.readouterr()
    assert "the report cannot be written: [Errno 28] No space left on device" in captured.err
    assert "2 of 2 images measured" in captured.out
    assert "Requests had a score threshold of 0.5" in captured.out


def test_label_map_renames_predicted_labels(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_image_folder(tmp_path / "data", {"cat": 2})
    (tmp_path / "map.json").write_text('{"feline": "cat"}')
    with fake_server(lambda _: [{"label": "feline", "score": 1}]) as url:
        assert run(data, *url_options(url, "--fail-under", "accuracy=1")) == 1
        assert "NOT ONE label" in capsys.readouterr().out
        assert run(data, *url_options(url, "--fail-under", "accuracy=1", "--label-map", tmp_path / "map.json")) == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "/nowhere: there is no such file or folder"),
        (["DATA", "--url", "http://x", "--recorded", "y"], "Name a URL or recordings, not both"),
        (["DATA", "--url", "ftp://x"], "--url: Expected a URL that begins with http"),
        (["DATA", "--url", "http://x", "--protocol", "smoke"], "--protocol: Expected one of chariot-v2-kserve"),
        (["DATA", "--url", "http://x", "--protocol", "v2"], "--name: v2 needs the model's name"),
        (["DATA", "--url", "x:1", "--protocol", "v2-grpc"], "--name: v2-grpc needs the model's name"),
        (["DATA", "--url", "http://x", "--header", "x"], '--header: Expected "Name: value" in line 1'),
        (["DATA", "--url", "http://x", "--parameter", "x"], '--parameter: Expected "name=value", got x'),
        (["DATA", "--fail-under", "map=high"], '--fail-under: Expected "figure=value"'),
        (["DATA", "--recorded", "/nowhere/x.db"], "There are no recordings at /nowhere/x.db"),
        (["DATA", "--url", "me:secret@127.0.0.1:1"], "http://127.0.0.1:1/infer: [Errno 111] Connection refused"),
        (["DATA", "--url", "http://x:port"], "--url: Invalid port"),
        (["DATA", "--slice", "camera"], "--slice: no image has metadata called 'camera'; there is none"),
        (["DATA", "--json", "/"], "/: Expected a file to write, got a folder"),
        (["DATA", "--fail-under", "map=nan"], '--fail-under: Expected "figure=value"'),
        (["DATA", "--url", "http://127.0.0.1:1", "--fail-under", "ar=1"], "there is no figure ar; there is accuracy"),
        (["DATA", "--url", "http://127.0.0.1:1", "--out", "/dev/null"], "File exists: '/dev/null'"),
        (["DATA", "--header", "a: b", "--timeout", "5"], "--header, --timeout: no effect without --url"),
        (["DATA", "--recorded", "x.db", "--parameter", "a=1"], "--parameter: no effect with --recorded"),
        (["DATA", "--fresh"], "--fresh: no effect without --out"),
        (["DATA", "--model", CLASSIFIER, "--parameter", "size=1"], "size: Expected one of action, score_threshold"),
        (["DATA", "--name", "missing"], "There is no model 'missing'"),
        (["DATA", "--task", "OBJECT_DETECTION"], "Expected labels of OBJECT_DETECTION"),
    ],
)
def test_wrong_arguments_print_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    data = write_image_folder(tmp_path, {"cat": 1})
    assert run(*(data if argument == "DATA" else argument for argument in arguments)) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.startswith("charioteer: ")


def test_timeout_longer_than_a_day_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(tmp_path, "--url", "http://127.0.0.1:1", "--timeout", "1e300") != 0
    assert "Must be <= 86400" in capsys.readouterr().err


def test_command_imports_no_heavy_library_at_start() -> None:
    extra = ("faster_coco_eval", "pyarrow", "shapely", "sklearn", "valor_lite")
    heavy = (*extra, "sqlalchemy", "grpc", "onnxruntime", "torch")
    program = f"import sys, app.plugins.evaluation.command; print([name for name in {heavy!r} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_help_lists_few_options() -> None:
    of_models = {f"--{field.name.replace('_', '-')}" for field in fields(registry().model_options_class)}
    arguments = App(default_command=evaluate).assemble_argument_collection()
    assert sum(argument.show for argument in arguments if argument.name not in of_models) <= 18


@pytest.mark.slow
def test_interrupted_evaluation_is_resumed(tmp_path: Path) -> None:
    data, out = write_image_folder(tmp_path / "data", {"cat": 8}), tmp_path / "out"
    in_progress, proceed = threading.Event(), threading.Event()

    def answer(number: int) -> Sequence[Mapping[str, object]]:
        if number > 3:
            in_progress.set()
            proceed.wait(300)
        return [{"label": "cat", "score": 1}]

    # Children of a shell's background job ignore Ctrl+C.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from cyclopts import App; "
        "from app.plugins.evaluation.command import evaluate; App(default_command=evaluate)()"
    )
    with fake_server(answer) as url:
        command = [str(argument) for argument in (sys.executable, "-c", program, data, *url_options(url, "--out", out))]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            assert in_progress.wait(300)
            process.send_signal(signal.SIGINT)
            proceed.set()
            _, error = process.communicate(timeout=300)
        assert process.returncode == 130, error
        assert f"interrupted; run the same command again to resume from {out}" in error
        assert "Traceback" not in error
        lines = (out / "predictions.jsonl").read_text().splitlines()
        assert 3 < len(lines) < 10
        assert run(data, *url_options(url, "--out", out, "--fail-under", "accuracy=1")) == 0


def fixture_datasets(folder: Path) -> dict[str, tuple[Path, str, str]]:
    """Create a dataset for each fixture model from the fixture images; return it with a figure and its minimum."""

    def annotations(name: str, image: int, *, outlined: bool) -> list[dict[str, Any]]:
        boxes: list[dict[str, Any]] = []
        for truth in TRUTH[name]:
            left, top, right, bottom = truth["box"]
            label = truth["shape"] if outlined else f"{truth['color']} {truth['shape']}"
            outline = [[value for point in truth["outline"] for value in point]] if outlined else None
            box = [left, top, right - left, bottom - top]
            boxes.append({"image_id": image, "bbox": box, "label": label, "segmentation": outline})
        return boxes

    def write_coco(path: Path, *, outlined: bool) -> Path:
        objects = annotations("scene.jpg", 1, outlined=outlined)
        labels = sorted({entry["label"] for entry in objects})
        for number, entry in enumerate(objects):
            entry.update({"id": number, "category_id": labels.index(entry.pop("label"))})
        path.mkdir(parents=True)
        shutil.copy(IMAGES / "scene.jpg", path)
        shutil.copy(IMAGES / "photo.jpg", path)
        images = [{"id": 1, "file_name": "scene.jpg"}, {"id": 2, "file_name": "photo.jpg"}]
        categories = [{"id": number, "name": label} for number, label in enumerate(labels)]
        content = {"images": images, "annotations": objects, "categories": categories}
        (path / "labels.json").write_text(json.dumps(content))
        return path

    ships = folder / "ships"
    (ships / "labelTxt").mkdir(parents=True)
    shutil.copy(IMAGES / "oriented.jpg", ships)
    lines: list[str] = []
    for truth in TRUTH["oriented.jpg"]:
        cx, cy, w, h, r = truth["rotated"]
        corners = cv2.boxPoints(((cx, cy), (w, h), math.degrees(r)))
        lines.append(f"{' '.join(str(value) for value in corners.ravel().tolist())} {truth['shape']} 0")
    (ships / "labelTxt" / "oriented.txt").write_text("\n".join(lines))
    (folder / "classes" / "blue star").mkdir(parents=True)
    shutil.copy(IMAGES / "shape.jpg", folder / "classes" / "blue star")
    shutil.copy(IMAGES / "shape.jpg", folder)
    question = {"image": "shape.jpg", "question": "What shape is in the picture?", "answer": "star"}
    (folder / "questions.jsonl").write_text(json.dumps(question))
    return {
        "detector": (write_coco(folder / "boxes", outlined=False), "map_coco", "0.8"),
        "segmenter": (write_coco(folder / "masks", outlined=True), "miou", "0.8"),
        "oriented-detector": (ships, "ap50", "0.9"),
        "classifier": (folder / "classes", "accuracy", "1"),
        "vlm": (folder / "questions.jsonl", "exact_match", "1"),
    }


@pytest.mark.slow
def test_figures_are_equal_in_process_over_every_protocol_and_from_recordings(tmp_path: Path) -> None:
    datasets = fixture_datasets(tmp_path)
    store = tmp_path / "recorded.db"
    with run_server("--record", str(store)) as server:
        url = server.address
        for model, (data, figure, minimum) in datasets.items():
            figures: dict[str, Any] = {}
            file = tmp_path / "local.json"
            assert run(data, "--name", model, "--json", file, "--fail-under", f"{figure}={minimum}") == 0
            figures["local"] = json.loads(file.read_bytes())["figures"]
            for protocol in ("chariot-v2-kserve", "v2", "v1", "grps", "v2-grpc", "grps-grpc"):
                file = tmp_path / f"{protocol}.json"
                address = server.grpc_address if protocol.endswith("-grpc") else url
                target = ("--url", address, "--protocol", protocol, "--name", model)
                assert run(data, *target, "--json", file, "--fail-under", f"{figure}={minimum}") == 0
                figures[protocol] = json.loads(file.read_bytes())["figures"]
            assert len({json.dumps(values) for values in figures.values()}) == 1, figures
            file = tmp_path / "recorded.json"
            assert run(data, "--recorded", store, "--name", model, "--json", file) == 0
            assert json.loads(file.read_bytes())["figures"] == figures["v2"]
        assert server.stop() == 0
