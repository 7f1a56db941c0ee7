"""``charioteer run``, run as a user runs it."""

import importlib
import json
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from app.core.settings.server import SettingsError
from app.plugins.bulk_run.parts import open_parts
from tests.support.command_line import charioteer
from tests.support.polling import wait_until
from tests.support.servers.certificate_authority import CertificateAuthority
from tests.support.servers.server_process import ROOT
from tests.support.servers.stand_in import fake_chariot, run_stand_in

PARQUET: Any = importlib.import_module("pyarrow.parquet")
IMAGES = ROOT / "fixtures" / "images"
DETECTOR = ROOT / "fixtures" / "models" / "detector"
DETECTION = {"label": "cat", "score": 0.9, "xmin": 10.0, "ymin": 8.0, "xmax": 30.0, "ymax": 24.0}


def write_images(folder: Path, count: int) -> Path:
    """Write images in two folders, and a file that is no image."""
    for index in range(count):
        (folder / str(index % 2)).mkdir(parents=True, exist_ok=True)
        shutil.copy(IMAGES / "scene.jpg", folder / str(index % 2) / f"{index:03}.jpg")
    (folder / "0" / "bad.jpg").write_bytes(b"bad")
    return folder


def run(source: object, to: Path, *arguments: object) -> tuple[int, str]:
    """Run the command with the detector, and return its exit status and its messages."""
    model = () if "--url" in arguments else ("--model", DETECTOR)
    done = charioteer("run", str(source), "--to", to, *map(str, model), *map(str, arguments))
    return done.returncode, done.stderr


def rows(to: Path) -> dict[str, dict[str, Any]]:
    """Return the rows of the results by file. Every image occurs once."""
    files = sorted(to.glob("part-*.parquet")) if to.is_dir() else [to]
    found: list[dict[str, Any]] = [row for file in files for row in PARQUET.read_table(file).to_pylist()]
    by_name = {row["metadata"][0]["text"]: row for row in found}
    assert len(by_name) == len(found)
    return by_name


def answers(to: Path) -> Mapping[str, object]:
    """Return what two runs over the same images have in common."""
    return {name: (row["id"], row["records"], row["message"], row["image_digest"]) for name, row in rows(to).items()}


def test_every_image_has_a_row_and_errors_are_rows(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", 5)
    status, messages = run(images, tmp_path / "out", "--batch", 3, "--part-size", 2, "--concurrency", 2)
    assert status == 0
    written = re.escape(f"Wrote {tmp_path / 'out'}: 6 images, 1 without an answer")
    assert re.match(rf"{written}, \d+\.\d/s; `charioteer inferences", messages)
    found = rows(tmp_path / "out")
    assert list(found) == ["0/000.jpg", "0/002.jpg", "0/004.jpg", "0/bad.jpg", "1/001.jpg", "1/003.jpg"]
    bad = found.pop("0/bad.jpg")
    assert (bad["error"], bad["records"], bad["image_digest"]) == ("invalid_request", None, None)
    assert "image" in bad["message"]
    columns = ("model", "version", "task_type", "error", "image_width", "image_height")
    for row in found.values():
        assert row["labels"][:2] == ["yellow circle", "purple star"]
        assert [row[name] for name in columns] == ["detector", "1", "OBJECT_DETECTION", None, 640, 480]
    run(images, tmp_path / "out.parquet")
    assert answers(tmp_path / "out.parquet") == answers(tmp_path / "out")
    assert not (tmp_path / "out.parquet.parts").exists()
    assert run(images, tmp_path / "out.parquet")[1].endswith("out.parquet is complete; --fresh replaces it\n")


def test_second_run_answers_only_images_without_a_row(tmp_path: Path) -> None:
    images, out = write_images(tmp_path / "images", 6), tmp_path / "out"
    assert run(images, out, "--limit", 2)[0] == 0
    before = rows(out)
    (images / "0" / "001.jpg").write_bytes((IMAGES / "photo.jpg").read_bytes())
    # A folder is the same source with a slash.
    status, messages = run(f"{images}/", out)
    assert (status, messages.splitlines()[0]) == (0, "2 images finished before")
    after = rows(out)
    assert len(after) == PARQUET.read_table(out).num_rows == 8
    assert {name: after[name] for name in before} == before
    assert list(before) == ["0/000.jpg", "0/002.jpg"]


def test_sample_is_the_same_in_every_run(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", 20)
    first, second = (tmp_path / f"{number}.parquet" for number in (1, 2))
    assert [run(images, file, "--sample", 0.5)[0] for file in (first, second)] == [0, 0]
    assert rows(first).keys() == rows(second).keys()
    assert 3 < len(rows(first)) < 18


def test_results_of_another_run_are_kept_unless_fresh(tmp_path: Path) -> None:
    images, out = write_images(tmp_path / "images", 2), tmp_path / "out"
    assert run(images, out)[0] == 0
    status, messages = run(images, out, "--parameter", "score_threshold=0.99")
    assert status == 2
    assert "has the results of a run that differs in: parameters; choose another folder, or remove " in messages
    assert run(images, out, "--parameter", "score_threshold=0.99", "--fresh")[0] == 0
    assert all(len(row["labels"] or ()) == 0 for row in rows(out).values())
    assert "Expected a new folder, or the results of an earlier run" in run(images, images)[1]
    assert "Expected a new folder, or the results of an earlier run" in run(images, images / "0" / "000.jpg")[1]
    assert "score_thresh" in run(images, tmp_path / "new", "--parameter", "score_thresh=1")[1]
    assert run(images, tmp_path / "new", "--parameter", "score_threshold=1")[0] == 0
    no_images = f"charioteer: There are no images in {images}/1/*.png\n"
    assert run(images / "1" / "*.png", tmp_path / "none") == (2, no_images)
    tarfile.open(tmp_path / "a.tar", "w").close()
    no_images = f"charioteer: There are no images in {tmp_path}/a.tar\n"
    assert run(tmp_path / "a.tar", tmp_path / "none.parquet") == (2, no_images)


def answer(status: int) -> tuple[int, object]:
    return status, {"output": [DETECTION]} if status == 200 else {"detail": "no"}


def test_busy_server_is_asked_again_and_a_bad_image_is_a_row(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", 6)
    bad = b'"YmFk"'
    with fake_chariot(lambda number, body: answer(503 if number == 2 else 400 if bad in body else 200)) as url:
        arguments = ("--url", url, "--protocol", "chariot-v2", "--concurrency", 3, "--score-threshold", 0.25)
        options = ("--candidate-labels", "cat", "--parameter", "tile=640")
        assert run(images, tmp_path / "out", *arguments, *options)[0] == 0
    found = rows(tmp_path / "out")
    rejected = found.pop("0/bad.jpg")
    assert (rejected["error"], rejected["message"]) == ("invalid_request", "HTTP 400: no")
    assert {row["records"] for row in found.values()} == {json.dumps([DETECTION], separators=(",", ":"))}
    assert {(row["task_type"], row["parameters"], row["image_width"]) for row in found.values()} == {
        ("OBJECT_DETECTION", '{"tile":640,"candidate_labels":["cat"],"score_threshold":0.25}', 640)
    }


def test_server_that_rejects_the_client_stops_the_run_and_the_same_command_continues_it(tmp_path: Path) -> None:
    images, out = write_images(tmp_path / "images", 6), tmp_path / "out"
    # A retry would be the fifth request.
    with fake_chariot(lambda number, _: answer(401 if number == 4 else 200)) as url:
        arguments = ("--url", url, "--protocol", "chariot-v2", "--concurrency", 1)
        status, messages = run(images, out, *arguments)
        assert (status, messages) == (2, "charioteer: HTTP 401: no; the same command continues the run\n")
        assert run(images, out, *arguments)[1].splitlines()[0] == "3 images finished before"
    assert len(rows(out)) == 7


@pytest.mark.parametrize("protocol", ["chariot-v2", "v2-grpc"])
def test_certificate_of_an_unknown_authority_ends_the_run_at_once_and_a_variable_may_name_it(
    tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, images = CertificateAuthority(tmp_path), write_images(tmp_path / "images", 1)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.issue("server"))
    body = json.dumps({"output": [DETECTION]}).encode()
    with run_stand_in(lambda _: (200, {}, body), context) as address:
        scheme = "grpcs" if protocol == "v2-grpc" else "https"
        arguments = (images, tmp_path / "out", "--url", f"{scheme}://{address}", "--protocol", protocol, "--name", "m")
        started = time.monotonic()
        status, messages = run(*arguments)
        assert time.monotonic() - started < 60
        assert (status, "CERTIFICATE_VERIFY_FAILED" in messages, "--ca names" in messages) == (2, True, True), messages
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        if protocol == "chariot-v2":
            assert run(*arguments)[0] == 0


def test_evaluate_and_inferences_read_the_results(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", 4)
    shutil.copy(IMAGES / "photo.jpg", images / "photo.jpg")
    assert run(images, tmp_path / "out", "--part-size", 3)[0] == 0
    out = tmp_path / "out"
    done = charioteer("evaluate", IMAGES / "coco.json", "--recorded", out, "--json", tmp_path / "report.json")
    assert done.returncode == 0, done.stderr
    assert json.loads((tmp_path / "report.json").read_bytes())["measured"] >= 1
    done = charioteer("inferences", out, "--error", "any", "--json")
    assert [row["metadata"][0]["value"] for row in json.loads(done.stdout)["inferences"]] == ["0/bad.jpg"]


@pytest.mark.slow
def test_run_that_is_killed_again_and_again_ends_with_the_result_of_an_undisturbed_one(tmp_path: Path) -> None:
    images, out = write_images(tmp_path / "images", 60), tmp_path / "out"
    command = [sys.executable, "-m", "charioteer", "run", images, "--model", DETECTOR, "--to", out, "--part-size", "5"]

    def parts() -> int:
        return len(list(out.glob("part-*")))

    for _ in range(3):
        finished = parts()
        with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL) as process:
            wait_until(lambda finished=finished, process=process: parts() > finished or process.poll() is not None)
            process.kill()
    assert run(images, out)[0] == 0
    assert run(images, tmp_path / "undisturbed")[0] == 0
    assert answers(out) == answers(tmp_path / "undisturbed")
    assert len(answers(out)) == 61


def test_fresh_keeps_the_results_of_a_run_that_writes_them_now(tmp_path: Path) -> None:
    with open_parts(tmp_path / "out", {}, 1, fresh=False):
        (part := tmp_path / "out" / "part-000000.parquet").touch()
        with (
            pytest.raises(SettingsError, match="another run writes to"),
            open_parts(tmp_path / "out", {}, 1, fresh=True),
        ):
            pass
        assert part.exists()
