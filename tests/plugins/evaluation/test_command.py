"""``charioteer evaluate``, run as a user runs it."""

import json
import math
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from functools import partial
from pathlib import Path

import pytest
from cyclopts import App

from app.core.plugins import registry
from app.plugins.evaluation.command import evaluate
from tests.support.command_line import charioteer, output_of
from tests.support.data.datasets import coco_annotation, write_coco_dataset, write_image_folder
from tests.support.servers.server_process import ROOT, run_server
from tests.support.servers.stand_in import fake_chariot

Records = Sequence[Mapping[str, object]]

IMAGES = ROOT / "fixtures" / "images"
PROTOCOLS = ("chariot-v2-kserve", "v2", "v1", "v2-grpc")
CLASSIFIER = str(ROOT / "fixtures" / "models" / "classifier")
CAT: Records = [{"label": "cat", "score": 1}]
DETECTION = {"label": "cat", "score": 0.9, "xmin": 10, "ymin": 8, "xmax": 30, "ymax": 24}


run = partial(output_of, "evaluate")


@contextmanager
def fake_server(answer: Callable[[int], Records | None]) -> Generator[tuple[str, ...]]:
    """Yield the options for a fake chariot-v2 server; its n-th answer is `answer(n)`, or 500 for None."""

    def answered(number: int, _: bytes) -> tuple[int, object]:
        records = answer(number)
        return (500, {"detail": "broken"}) if records is None else (200, {"output": records})

    with fake_chariot(answered) as url:
        yield "--url", url, "--protocol", "chariot-v2"


def test_reports_are_written(tmp_path: Path) -> None:
    data, json_file, html = write_coco_dataset(tmp_path / "d", [coco_annotation()]), tmp_path / "r.json", tmp_path / "r"
    with fake_server(lambda _: [DETECTION]) as server:
        output = run(data, *server, "--slice", "camera", "--json", json_file, "--html", html)
    assert "OBJECT_DETECTION" in output
    report = json.loads(json_file.read_bytes())
    assert (report["images"], report["figures"]["recall"], report["figures"]["precision"]) == (2, 1.0, 0.5)
    assert report["tables"][-1]["title"] == "Slices"
    assert b"<!doctype html>" in html.read_bytes()


def test_figure_below_the_minimum_sets_the_exit_status(tmp_path: Path) -> None:
    with fake_server(lambda _: [DETECTION]) as server:
        command = write_coco_dataset(tmp_path, [coco_annotation()]), *server, "--fail-under"
        run(*command, "recall=0.9", "--fail-under", "precision=0.5")
        low = run(*command, "recall=0.9", "--fail-under", "precision=0.6", status=1)
        assert "precision is 0.5000, below the minimum 0.6" in low
        assert "there is no figure speed; there is map_coco, ap50" in run(*command, "speed=1", status=2)


def test_failures_are_counted_and_listed(tmp_path: Path) -> None:
    data = write_image_folder(tmp_path / "data", {"cat": 5})
    with fake_server(lambda number: None if number == 2 else CAT) as server:
        output = run(data, *server, "--concurrency", 1, "--fail-under", "answered=0.9", status=1)
    assert "4 of 5 images measured" in output
    assert re.search(r"cat/1.jpg +│ HTTP 500: broken", output)
    assert "1 of 5 were not answered" in output
    assert "answered is 0.8000, below the minimum 0.9" in output


def test_limited_run_asks_for_the_first_images(tmp_path: Path) -> None:
    requests: list[int] = []
    with fake_server(lambda number: requests.append(number) or CAT) as server:
        output = run(write_image_folder(tmp_path / "data", {"cat": 5}), *server, "--limit", 2)
    assert len(requests) == 2
    assert "2 of 2 images measured" in output
    assert "Only the first 2 of 5" in output


def test_unreadable_answers_are_an_error(tmp_path: Path) -> None:
    with fake_server(lambda _: [{**DETECTION, "xmax": None}]) as server:
        output = run(write_coco_dataset(tmp_path, [coco_annotation()]), *server, status=2)
    assert "Not one of 2 answers can be measured; a.jpg: The answer cannot be read: xmax" in output


def test_report_that_cannot_be_written_is_still_printed(tmp_path: Path) -> None:
    data = write_coco_dataset(tmp_path, [coco_annotation()])
    with fake_server(lambda _: [DETECTION]) as server:
        output = run(data, *server, "--json", "/dev/full", "--score-threshold", 0.5, status=2)
    assert "the report cannot be written: No space left on device" in output
    assert "2 of 2 images measured" in output
    assert "Requests had a score threshold of 0.5" in output


def test_label_map_renames_predicted_labels(tmp_path: Path) -> None:
    data = write_image_folder(tmp_path / "data", {"cat": 2})
    (tmp_path / "map.json").write_text('{"feline": "cat"}')
    with fake_server(lambda _: [{"label": "feline", "score": 1}]) as server:
        command = data, *server, "--fail-under", "accuracy=1"
        assert "share no label" in run(*command, status=1)
        run(*command, "--label-map", tmp_path / "map.json")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["/nowhere"], "/nowhere: there is no such file or folder"),
        (["DATA", "--url", "http://x", "--recorded", "y"], "Name a URL or recordings, not both"),
        (["DATA", "--url", "ftp://x"], "--url: Expected a URL that begins with http"),
        (["DATA", "--url", "http://x", "--protocol", "smoke"], "--protocol: Expected one of chariot-v2-kserve"),
        (["DATA", "--url", "http://x", "--protocol", "v2"], "--name: v2 needs the model's name"),
        (["DATA", "--url", "x:1", "--protocol", "kserve-v2-grpc"], "--name: v2-grpc needs the model's name"),
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
        (["DATA", "--header", "a: b", "--timeout", "5"], "--header, --timeout: no effect without --url"),
        (["DATA", "--recorded", "x.db", "--parameter", "a=1"], "--parameter: no effect with --recorded"),
        (["DATA", "--url", "http://x", "--model", CLASSIFIER], "--model: no effect with --url"),
        (["DATA", "--recorded", "x.db", "--max-pixels", "9"], "--max-pixels: no effect with --recorded"),
        (["DATA", "--fresh"], "`charioteer run"),
        (["DATA", "--model", CLASSIFIER, "--parameter", "size=1"], "size: Expected one of action, score_threshold"),
        (["DATA", "--name", "missing"], "There is no model 'missing'"),
        (["DATA", "--task", "OBJECT_DETECTION"], "Expected labels of OBJECT_DETECTION"),
    ],
)
def test_wrong_arguments_print_an_error(tmp_path: Path, arguments: list[str], message: str) -> None:
    data = write_image_folder(tmp_path, {"cat": 1})
    error = run(*(data if argument == "DATA" else argument for argument in arguments), status=2)
    assert message in error
    assert error.startswith("charioteer: ")


def test_timeout_longer_than_a_day_is_rejected(tmp_path: Path) -> None:
    done = charioteer("evaluate", tmp_path, "--url", "http://127.0.0.1:1", "--timeout", "1e300")
    assert done.returncode != 0
    assert "Must be <= 86400" in done.stdout + done.stderr


def test_command_imports_no_heavy_library_at_start() -> None:
    extra = ("faster_coco_eval", "pyarrow", "shapely", "sklearn", "valor_lite")
    heavy = (*extra, "sqlalchemy", "grpc", "onnxruntime", "torch")
    program = f"import sys, app.plugins.evaluation.command; print([name for name in {heavy!r} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_help_lists_few_options() -> None:
    of_models = {f"--{field.name.replace('_', '-')}" for field in fields(registry().model_options)}
    arguments = App(default_command=evaluate).assemble_argument_collection()
    assert sum(argument.show for argument in arguments if argument.name not in of_models) <= 18


@pytest.mark.slow
def test_interrupted_evaluation_says_how_to_continue_the_next_one(tmp_path: Path) -> None:
    in_progress, proceed = threading.Event(), threading.Event()

    def answer(number: int) -> Records:
        in_progress.set()
        proceed.wait(300)
        return CAT

    # Children of a shell's background job ignore Ctrl+C.
    program = (
        "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); from cyclopts import App; "
        "from app.plugins.evaluation.command import evaluate; App(default_command=evaluate)()"
    )
    with fake_server(answer) as server:
        command = [sys.executable, "-c", program, write_image_folder(tmp_path / "data", {"cat": 8}), *server]
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
            assert in_progress.wait(300)
            process.send_signal(signal.SIGINT)
            _, error = process.communicate(timeout=300)
            proceed.set()
    assert process.returncode == 130, error
    assert "interrupted; `charioteer run` can be continued" in error
    assert "Traceback" not in error


def fixture_datasets(folder: Path) -> dict[str, tuple[Path, str]]:
    """Create a dataset for each fixture model from the fixture images; return it with the minimum of a figure."""
    coco = json.loads((IMAGES / "coco.json").read_text())
    shapes = {category["id"]: category["name"].split()[1] for category in coco["categories"]}
    names = sorted({*shapes.values()})
    coco["images"] = [{**image, "file_name": str(IMAGES / image["file_name"])} for image in coco["images"]]
    coco["categories"] = [{"id": number, "name": name} for number, name in enumerate(names)]
    for annotation in coco["annotations"]:
        annotation["category_id"] = names.index(shapes[annotation["category_id"]])
    (folder / "masks.json").write_text(json.dumps(coco))
    truths = json.loads((IMAGES / "truth.json").read_text())["oriented.jpg"]
    names, ships = sorted({truth["shape"] for truth in truths}), []
    for truth in truths:
        cx, cy, w, h, r = truth["rotated"]
        box, rotation = [cx - w / 2, cy - h / 2, w, h], {"rotation": math.degrees(r)}
        category = names.index(truth["shape"])
        ships.append({"image_id": 1, "category_id": category, "bbox": box, "attributes": rotation})
    image = {"id": 1, "file_name": str(IMAGES / "oriented.jpg")}
    categories = [{"id": number, "name": name} for number, name in enumerate(names)]
    oriented = {"images": [image], "categories": categories, "annotations": ships}
    (folder / "ships.json").write_text(json.dumps(oriented))
    (folder / "classes" / "blue star").mkdir(parents=True)
    shutil.copy(IMAGES / "shape.jpg", folder / "classes" / "blue star")
    return {
        "detector": (IMAGES / "coco.json", "map_coco=0.8"),
        "segmenter": (folder / "masks.json", "miou=0.8"),
        "oriented-detector": (folder / "ships.json", "ap50=0.9"),
        "classifier": (folder / "classes", "accuracy=1"),
    }


@pytest.mark.slow
def test_figures_are_equal_in_process_over_every_protocol_and_from_recordings(tmp_path: Path) -> None:
    store, file = tmp_path / "recorded.db", tmp_path / "report.json"
    with run_server("--record", str(store)) as server:
        for model, (data, minimum) in fixture_datasets(tmp_path).items():

            def figures(*target: object, model: str = model, data: Path = data, minimum: str = minimum) -> object:
                run(data, "--name", model, "--json", file, "--fail-under", minimum, *target)
                return json.loads(file.read_bytes())["figures"]

            expected = figures()
            # The records of all tasks travel alike.
            for protocol in PROTOCOLS if model == "detector" else ("v2",):
                address = server.grpc_address if protocol.endswith("-grpc") else server.address
                assert figures("--url", address, "--protocol", protocol) == expected, (model, protocol)
            assert figures("--recorded", store) == expected, model
        assert server.stop() == 0
