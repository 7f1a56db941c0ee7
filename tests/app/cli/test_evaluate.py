"""``charioteer evaluate``, as a user runs it."""

import inspect
import json
import math
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import cv2
import pytest
from cyclopts import App

from app.cli.evaluate import evaluate
from tests.support.datasets import annotation, coco, image_folder
from tests.support.server_process import ROOT, serving

IMAGES = ROOT / "fixtures" / "images"
TRUTH: Mapping[str, Sequence[Mapping[str, Any]]] = json.loads((IMAGES / "truth.json").read_text())
FOUND = {"label": "cat", "score": 0.9, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 24}


def run(*arguments: object) -> int:
    """The exit status of the command, in this process."""
    try:
        App(default_command=evaluate)([str(each) for each in arguments], result_action="return_value")
    except SystemExit as stopped:
        return int(stopped.code or 0)
    return 0


@contextmanager
def engine(answer: Callable[[int], Sequence[Mapping[str, object]] | None]) -> Generator[str]:
    """The URL of an engine of chariot-v2 that answers its n-th request with `answer(n)`; None is a failure."""
    lock, count = threading.Lock(), [0]

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            with lock:
                count[0] += 1
                number = count[0]
            records = answer(number)
            body = json.dumps({"output": records} if records is not None else {"detail": "broken"}).encode()
            self.send_response(500 if records is None else 200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{made.server_port}"
    finally:
        made.shutdown()
        made.server_close()
        thread.join()


def through(url: str, *arguments: object) -> tuple[object, ...]:
    return "--url", url, "--protocol", "chariot-v2", *arguments


def test_all_reports_are_written_and_a_second_run_asks_nobody(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out, asked = coco(tmp_path / "data", [annotation()]), tmp_path / "out", list[int]()

    def answer(number: int) -> Sequence[Mapping[str, object]]:
        asked.append(number)
        return [FOUND]

    with engine(answer) as url:
        assert run(data, *through(url, "--out", out, "--slice", "camera", "--json", tmp_path / "r.json")) == 0
        first = capsys.readouterr().out
        assert len(asked) == 2
        assert run(data, *through(url, "--out", out, "--slice", "camera")) == 0
        assert len(asked) == 2
        assert capsys.readouterr().out == first
        assert run(data, *through(url, "--out", out, "--top-k", 7)) == 2
        assert "answers with another parameters; --fresh starts again" in capsys.readouterr().err
        assert run(data, *through(url, "--out", out, "--top-k", 7, "--fresh")) == 0
        assert len(asked) == 4
    assert "OBJECT_DETECTION" in first
    report = json.loads((out / "report.json").read_bytes())
    assert (report["images"], report["figures"]["recall"], report["figures"]["precision"]) == (2, 1.0, 0.5)
    assert report["tables"][-1]["title"] != "Slices"
    assert json.loads((tmp_path / "r.json").read_bytes())["tables"][-1]["title"] == "Slices"
    assert b"<!doctype html>" in (out / "report.html").read_bytes()


def test_a_figure_that_is_too_low_is_an_exit_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = coco(tmp_path, [annotation()])
    with engine(lambda _: [FOUND]) as url:
        assert run(data, *through(url, "--fail-under", "recall=0.9", "--fail-under", "precision=0.5")) == 0
        assert run(data, *through(url, "--fail-under", "recall=0.9", "--fail-under", "precision=0.6")) == 1
        assert "precision is 0.5000, below the minimum 0.6" in capsys.readouterr().err
        assert run(data, *through(url, "--fail-under", "speed=1")) == 2
        assert "there is no figure speed; there is map, ap50" in capsys.readouterr().err


def test_failures_are_counted_and_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = image_folder(tmp_path / "data", {"cat": 5})
    with engine(lambda number: None if number == 2 else [{"label": "cat", "score": 1}]) as url:
        assert run(data, *through(url, "--concurrency", 1)) == 0
    told = capsys.readouterr().out
    assert "4 of 5 images measured" in told
    assert "not answered cat/1.jpg: HTTP 500: broken" in told
    assert "1 of 5 were not answered" in told


def test_what_began_with_the_first_images_goes_on_with_all(tmp_path: Path) -> None:
    data, asked = image_folder(tmp_path / "data", {"cat": 5}), list[int]()

    def answer(number: int) -> Sequence[Mapping[str, object]]:
        asked.append(number)
        return [{"label": "cat", "score": 1}]

    with engine(answer) as url:
        assert run(data, *through(url, "--out", tmp_path / "out", "--limit", 2)) == 0
        assert len(asked) == 2
        assert run(data, *through(url, "--out", tmp_path / "out")) == 0
    assert len(asked) == 5
    assert len((tmp_path / "out" / "predictions.jsonl").read_text().splitlines()) == 6


def test_so_many_have_to_be_answered(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = image_folder(tmp_path / "data", {"cat": 5})
    with engine(lambda number: None if number == 2 else [{"label": "cat", "score": 1}]) as url:
        assert run(data, *through(url, "--concurrency", 1, "--fail-under", "answered=0.8")) == 0
    with engine(lambda number: None if number == 2 else [{"label": "cat", "score": 1}]) as url:
        assert run(data, *through(url, "--concurrency", 1, "--fail-under", "answered=0.9")) == 1
    assert "answered is 0.8000, below the minimum 0.9" in capsys.readouterr().err


def test_answers_that_cannot_be_read_are_nothing_to_measure(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with engine(lambda _: [{**FOUND, "xmax": None}]) as url:
        assert run(coco(tmp_path, [annotation()]), *through(url)) == 2
    assert "Not one of 2 answers can be measured; a.jpg: The answer cannot be read: xmax" in capsys.readouterr().err


def test_a_report_that_cannot_be_written_is_on_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with engine(lambda _: [FOUND]) as url:
        assert run(coco(tmp_path, [annotation()]), *through(url, "--json", "/dev/full")) == 2
    told = capsys.readouterr()
    assert "the report cannot be written: [Errno 28] No space left on device" in told.err
    assert "2 of 2 images measured" in told.out


def test_only_some(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = image_folder(tmp_path / "data", {"cat": 5})
    with engine(lambda _: [{"label": "cat", "score": 1}]) as url:
        assert run(data, *through(url, "--limit", 2)) == 0
    told = capsys.readouterr().out
    assert "2 of 2 images measured" in told
    assert "Only the first 2 of 5" in told


def test_a_threshold_that_cuts_the_curve_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = coco(tmp_path, [annotation()])
    with engine(lambda _: [FOUND]) as url:
        assert run(data, *through(url)) == 0
        assert "were asked for" not in capsys.readouterr().out
        assert run(data, *through(url, "--score-threshold", 0.5)) == 0
        assert "Requests had a score threshold of 0.5" in capsys.readouterr().out


def test_labels_are_mapped(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = image_folder(tmp_path / "data", {"cat": 2})
    (tmp_path / "map.json").write_text('{"feline": "cat"}')
    with engine(lambda _: [{"label": "feline", "score": 1}]) as url:
        assert run(data, *through(url, "--fail-under", "accuracy=1")) == 1
        assert "NOT ONE label" in capsys.readouterr().out
        assert run(data, *through(url, "--fail-under", "accuracy=1", "--label-map", tmp_path / "map.json")) == 0


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["/nowhere"], "/nowhere: there is no such file or folder"),
        (["DATA", "--url", "http://x", "--recorded", "y"], "Name a URL or recordings, not both"),
        (["DATA", "--url", "x"], "--url: Expected a URL that begins with http"),
        (["DATA", "--url", "http://x", "--protocol", "smoke"], "--protocol: Expected one of chariot-v2-kserve"),
        (["DATA", "--url", "http://x", "--protocol", "v2"], "--name: v2 needs the model's name"),
        (["DATA", "--url", "x:1", "--protocol", "v2-grpc"], "--name: v2-grpc needs the model's name"),
        (["DATA", "--url", "http://x", "--header", "x"], '--header: Expected "Name: value" in line 1'),
        (["DATA", "--url", "http://x", "--parameter", "x"], '--parameter: Expected "name=value", got x'),
        (["DATA", "--fail-under", "map=high"], '--fail-under: Expected "figure=value"'),
        (["DATA", "--recorded", "/nowhere/x.db"], "There are no recordings at /nowhere/x.db"),
        (["DATA", "--url", "http://me:secret@127.0.0.1:1"], "http://127.0.0.1:1/infer: [Errno 111] Connection refused"),
        (["DATA", "--url", "http://x:port"], "--url: Invalid port"),
        (["DATA", "--slice", "camera"], "--slice: no image has metadata called 'camera'; there is none"),
        (["DATA", "--json", "/nowhere/x.json"], "there is no folder /nowhere"),
        (["DATA", "--fail-under", "map=nan"], '--fail-under: Expected "figure=value"'),
        (["DATA", "--json", "/"], "/: Expected a file to write, got a folder"),
        (["DATA", "--url", "http://127.0.0.1:1", "--fail-under", "map=1"], "there is no figure map; there is accuracy"),
        (["DATA", "--url", "http://127.0.0.1:1", "--out", "/dev/null"], "File exists: '/dev/null'"),
        (["DATA", "--name", "nobody"], "There is no model 'nobody'"),
        (["DATA", "--task", "OBJECT_DETECTION"], "Expected labels of OBJECT_DETECTION"),
    ],
)
def test_what_is_wrong_is_a_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    data = image_folder(tmp_path, {"cat": 1})
    assert run(*(data if each == "DATA" else each for each in arguments)) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.startswith("charioteer: ")


def test_starting_imports_no_library_of_evaluations() -> None:
    heavy = ("valor_lite", "shapely", "pyarrow", "sqlalchemy", "grpc", "onnxruntime", "torch")
    program = f"import sys, app.cli.evaluate; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", [name for name in inspect.signature(evaluate).parameters if name != "options"])
def test_every_option_is_documented(name: str) -> None:
    option = "charioteer evaluate" if name == "dataset" else f"--{name.replace('_', '-')}"
    assert option in (ROOT / "docs" / "evaluation.md").read_text()


@pytest.mark.slow
def test_an_interrupted_evaluation_goes_on(tmp_path: Path) -> None:
    data, out = image_folder(tmp_path / "data", {"cat": 8}), tmp_path / "out"
    some, go_on = threading.Event(), threading.Event()

    def answer(number: int) -> Sequence[Mapping[str, object]]:
        if number > 3:
            some.set()
            go_on.wait(300)
        return [{"label": "cat", "score": 1}]

    program = "from cyclopts import App; from app.cli.evaluate import evaluate; App(default_command=evaluate)()"
    with engine(answer) as url:
        command = [str(each) for each in (sys.executable, "-c", program, data, *through(url, "--out", out))]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            assert some.wait(300)
            process.send_signal(signal.SIGINT)
            go_on.set()
            _, error = process.communicate(timeout=300)
        assert process.returncode == 130, error
        assert f"interrupted; run the same command again to resume from {out}" in error
        assert "Traceback" not in error
        lines = (out / "predictions.jsonl").read_text().splitlines()
        assert 3 < len(lines) < 10
        assert run(data, *through(url, "--out", out, "--fail-under", "accuracy=1")) == 0


def fixture_datasets(folder: Path) -> dict[str, tuple[Path, str, str]]:
    """What the fixture images show, in every format: by the model that is to see it, a figure and its least value."""

    def annotations(name: str, image: int, *, outlined: bool) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = []
        for each in TRUTH[name]:
            left, top, right, bottom = each["box"]
            label = each["shape"] if outlined else f"{each['color']} {each['shape']}"
            outline = [[value for point in each["outline"] for value in point]] if outlined else None
            box = [left, top, right - left, bottom - top]
            made.append({"image_id": image, "bbox": box, "label": label, "segmentation": outline})
        return made

    def written(path: Path, *, outlined: bool) -> Path:
        found = annotations("scene.jpg", 1, outlined=outlined)
        labels = sorted({each["label"] for each in found})
        for number, each in enumerate(found):
            each.update({"id": number, "category_id": labels.index(each.pop("label"))})
        path.mkdir(parents=True)
        shutil.copy(IMAGES / "scene.jpg", path)
        shutil.copy(IMAGES / "photo.jpg", path)
        images = [{"id": 1, "file_name": "scene.jpg"}, {"id": 2, "file_name": "photo.jpg"}]
        categories = [{"id": number, "name": label} for number, label in enumerate(labels)]
        content = {"images": images, "annotations": found, "categories": categories}
        (path / "labels.json").write_text(json.dumps(content))
        return path

    ships = folder / "ships"
    (ships / "labelTxt").mkdir(parents=True)
    shutil.copy(IMAGES / "oriented.jpg", ships)
    lines: list[str] = []
    for each in TRUTH["oriented.jpg"]:
        cx, cy, w, h, r = each["rotated"]
        corners = cv2.boxPoints(((cx, cy), (w, h), math.degrees(r)))
        lines.append(f"{' '.join(str(value) for value in corners.ravel().tolist())} {each['shape']} 0")
    (ships / "labelTxt" / "oriented.txt").write_text("\n".join(lines))
    (folder / "classes" / "blue star").mkdir(parents=True)
    shutil.copy(IMAGES / "shape.jpg", folder / "classes" / "blue star")
    shutil.copy(IMAGES / "shape.jpg", folder)
    question = {"image": "shape.jpg", "question": "What shape is in the picture?", "answer": "star"}
    (folder / "questions.jsonl").write_text(json.dumps(question))
    return {
        "detector": (written(folder / "boxes", outlined=False), "map_coco", "0.8"),
        "segmenter": (written(folder / "masks", outlined=True), "miou", "0.8"),
        "oriented-detector": (ships, "ap50", "0.9"),
        "classifier": (folder / "classes", "accuracy", "1"),
        "vlm": (folder / "questions.jsonl", "exact_match", "1"),
    }


@pytest.mark.slow
@pytest.mark.parametrize("model", ["classifier", "detector", "oriented-detector", "segmenter", "vlm"])
def test_the_fixture_models_here(tmp_path: Path, model: str) -> None:
    data, figure, least = fixture_datasets(tmp_path)[model]
    page = tmp_path / "report.html"
    assert run(data, "--name", model, "--fail-under", f"{figure}={least}", "--html", page) == 0
    assert page.stat().st_size > 2000


@pytest.mark.slow
def test_every_protocol_gives_the_same_figures_and_so_do_recordings(tmp_path: Path) -> None:
    datasets = fixture_datasets(tmp_path)
    store = tmp_path / "recorded.db"
    with serving("--record", str(store)) as server:
        url = server.address
        for model, (data, figure, least) in datasets.items():
            figures: dict[str, Any] = {}
            for protocol in ("chariot-v2-kserve", "v2", "v1", "grps", "v2-grpc", "grps-grpc"):
                file = tmp_path / f"{protocol}.json"
                address = server.grpc_address if protocol.endswith("-grpc") else url
                where = ("--url", address, "--protocol", protocol, "--name", model)
                assert run(data, *where, "--json", file, "--fail-under", f"{figure}={least}") == 0
                figures[protocol] = json.loads(file.read_bytes())["figures"]
            assert len({json.dumps(each) for each in figures.values()}) == 1, figures
            file = tmp_path / "recorded.json"
            assert run(data, "--recorded", store, "--name", model, "--json", file) == 0
            assert json.loads(file.read_bytes())["figures"] == figures["v2"]
        assert server.stop() == 0
