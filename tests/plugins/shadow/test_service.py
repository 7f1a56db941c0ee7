"""Shadow versions in a server, from the setting to the report."""

import json
import os
import threading
from collections.abc import Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.settings.server import ModelOptions, SettingsError
from app.plugins.recording.inference import Truth
from app.plugins.recording.inference_query import InferenceQuery
from app.plugins.recording.query.reader import RecordingReader, open_recordings
from app.plugins.recording.service import store_at
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.shadow.rows import ComparedInference, read_compared
from tests.core.runtimes.onnxruntime import graphs
from tests.support.command_line import charioteer
from tests.support.data.chariot import image_input, infer, items
from tests.support.data.images import encode_base64, encode_image
from tests.support.models.model_folders import write_model
from tests.support.polling import wait_until
from tests.support.servers.settings import settings_of_main_port

CODE = """
class Model:
    def predict(self, image):
        score = 0.9 if image[0, 0, {channel}] > 127 else 0.2
        return {{"cat": score, "dog": 1 - score}}
"""
BLOCKING = """
import pathlib
class Model:
    def predict(self, image):
        (pathlib.Path(__file__).parent / "gate").read_text()
        return {"cat": 1.0, "dog": 0.0}
"""
FAILING = "class Model:\n    def predict(self, image):\n        raise ValueError('secret thing')\n"


def _write_models(folder: Path, code: str, *, versions: object = ("1",), **shadow: object) -> Path:
    """Write the model `m` with the version 1, and 2 with `code` in its shadow."""
    task, setting = "IMAGE_CLASSIFICATION", {"version": "2", "share": 1, **shadow}
    write_model(folder / "m" / "1", CODE.format(channel=0), task_type=task, shadow=setting)
    write_model(folder / "m" / "2", code, task_type=task)
    (folder / "m" / "model-settings.json").write_text(json.dumps({"versions": versions}))
    return folder


def _service(folder: Path, store: Path | None, **settings: object) -> Service:
    options = ModelOptions(model_repository=folder, allow_code=True)
    all_settings = {"workers": 1, "record": str(store) if store else None, **settings}
    return Service(settings_of_main_port(**all_settings), lambda: find_models(options))


@contextmanager
def _serving(folder: Path, store: Path, **settings: object) -> Generator[TestClient[Litestar]]:
    service = _service(folder, store, **settings)
    loaded = threading.Event()
    service.loading.when_finished = lambda _: loaded.set()
    with TestClient(service.app) as client:
        assert loaded.wait(60)
        yield client


def _infer(client: TestClient[Litestar], red: int, green: int) -> str:
    pixels = np.zeros((8, 8, 3), np.uint8)
    pixels[0, 0] = red, green, 0
    tensor = image_input(encode_base64(encode_image(pixels)))
    return items(infer(client, "m", tensor))[0]["label"]


def _images(client: TestClient[Litestar], outcome: str) -> float:
    prefix = f'charioteer_shadow_images_total{{model="m",outcome="{outcome}",version="2"}} '
    lines = client.get("/metrics").text.splitlines()
    return next((float(line.removeprefix(prefix)) for line in lines if line.startswith(prefix)), 0)


def _compared(store: Path) -> Sequence[ComparedInference]:
    return read_compared(RecordingReader(parse_dsn(str(store))))


def _report(store: Path, *options: str) -> tuple[int, str]:
    completed = charioteer("shadow", store, *options)
    return completed.returncode, completed.stdout + completed.stderr


@pytest.mark.slow
def test_both_versions_are_compared_and_judged_by_truths(tmp_path: Path) -> None:
    folder, store = _write_models(tmp_path / "models", CODE.format(channel=1)), tmp_path / "store.db"
    with _serving(folder, store) as client:
        for index in range(40):
            # The shadow version finds a dog in every fourth image, where clients get a cat.
            assert _infer(client, 255, 0 if index % 4 == 0 else 255) == "cat"
            done = index + 1
            wait_until(lambda done=done: _images(client, "agreed") + _images(client, "differs") == done)
        assert _images(client, "differs") == 10
        shown = client.get("/page/shadow.json").json()
        assert len(shown) == 10
        assert (shown[0]["champion"], shown[0]["before"]) == ("1", "cat 0.90")
        assert (shown[0]["version"], shown[0]["after"]) == ("2", "dog 0.80")
    found = [(one.answer.version, one.inference.version, one.answer.agreed) for one in _compared(store)]
    assert len(found) == 40
    assert {*found} == {("2", "1", True), ("2", "1", False)}
    status, text = _report(store, "--json")
    agreement = json.loads(text)["agreement"]
    assert (status, agreement["images"], agreement["agreed"]["value"]) == (0, 40, 0.75)
    assert agreement["agreed"]["low"] < 0.75 < agreement["agreed"]["high"]
    status, text = _report(store, "--truth")
    assert (status, "No image that both versions answered has a complete truth" in text) == (2, True)
    _write_truths(store, "dog")
    status, text = _report(store, "--truth", "--json")
    verdict = json.loads(text)["verdict"]
    assert (status, verdict["champion"], verdict["shadow"]) == (0, 0.0, 0.25)
    assert verdict["reasons"] == []
    _write_truths(store, "cat")
    status, text = _report(store, "--truth")
    assert status == 1
    for expected in ("version 2 may be worse: the loss may be 0.", "cat loses more than 0.05", "Different answers: "):
        assert expected in text


def test_rule_records_requests_whose_shadow_answer_differs(tmp_path: Path) -> None:
    folder, store = _write_models(tmp_path / "models", CODE.format(channel=1)), tmp_path / "store.db"
    rules = {"record_sample": 1e-9, "record_when": "differs: disagreement > 0"}
    with _serving(folder, store, **rules) as client:
        for green in (255, 0, 255):
            _infer(client, 255, green)
        wait_until(lambda: _images(client, "agreed") + _images(client, "differs") == 3)
    (recorded,) = open_recordings(str(store)).page(InferenceQuery(), 10).inferences
    assert (recorded.reason, recorded.probability) == ("differs", None)
    assert recorded.image is not None
    assert [(one.inference.id, one.answer.agreed) for one in _compared(store)] == [(recorded.id, False)]


def _write_truths(store: Path, label: str) -> None:
    """Make this the truth of all inferences."""
    truth = Truth(verdict="wrong", records=[{"label": label}], complete=True)
    names = [one.id for batch in open_recordings(str(store)).batches(InferenceQuery()) for one in batch]
    with closing(store_at(parse_dsn(str(store)))) as opened:
        opened.set_documents("truth", dict.fromkeys(names, truth))


def test_requests_never_wait_for_a_shadow_answer(tmp_path: Path) -> None:
    folder, store = _write_models(tmp_path / "models", BLOCKING), tmp_path / "store.db"
    gate = folder / "m" / "2" / "gate"
    os.mkfifo(gate)
    with _serving(folder, store) as client:
        for _ in range(40):
            # The shadow version blocks on the first of these images.
            assert _infer(client, 255, 255) == "cat"
        assert _images(client, "dropped") >= 7
        assert _images(client, "agreed") == 0
        opened = os.open(gate, os.O_WRONLY)
        gate.unlink()
        gate.write_text("")
        os.close(opened)
        wait_until(lambda: _images(client, "agreed") == 40 - _images(client, "dropped"))


def test_shadow_version_is_released_with_its_champion(tmp_path: Path) -> None:
    code = CODE.format(channel=1) + "    def __del__(self):\n        open(__file__ + '.released', 'w').close()\n"
    folder, store = _write_models(tmp_path / "models", code), tmp_path / "store.db"
    with _serving(folder, store) as client:
        _infer(client, 255, 255)
        wait_until(lambda: _images(client, "agreed") == 1)
        assert client.post("/v2/repository/models/m/unload").status_code == 200
        wait_until((folder / "m" / "2" / "model.py.released").exists)


def test_failures_stay_in_the_shadow_and_redacted_values_stay_out(tmp_path: Path) -> None:
    folder, store = _write_models(tmp_path / "models", FAILING), tmp_path / "store.db"
    with _serving(folder, store, record_redact="secret") as client:
        assert _infer(client, 255, 255) == "cat"
        wait_until(lambda: _images(client, "failed") == 1)
    (one,) = _compared(store)
    assert (one.answer.agreed, one.answer.error) == (None, "[redacted]")


def test_tensor_view_gets_no_shadow_answer(tmp_path: Path) -> None:
    for version in ("1", "2"):
        (folder := tmp_path / "models" / "m" / version).mkdir(parents=True)
        graphs.channel_means(
            folder / "model.onnx", properties=graphs.properties("classify", ("cat", "dog", "x"), (8, 8))
        )
    (folder.parent / "model-settings.json").write_text('{"versions": ["1"], "shadow": {"version": "2", "share": 1}}')
    tensor = {"name": "images", "datatype": "FP32", "shape": [1, 3, 8, 8], "data": [0] * 192}
    with _serving(tmp_path / "models", tmp_path / "store.db") as client:
        assert client.post("/v2/models/m@tensors/infer", json={"inputs": [tensor]}).status_code == 200
        _infer(client, 255, 255)
        wait_until(lambda: _images(client, "agreed") == 1)
        assert 'charioteer_shadow_images_total{model="m@tensors"' not in client.get("/metrics").text


def test_trials_get_no_shadow_answer_and_records_are_redacted_or_left_out(tmp_path: Path) -> None:
    for name, keys, keeps, expected in (
        ("redacting", "score", True, {"label": "cat", "score": "[redacted]"}),
        ("short", "", False, None),
    ):
        folder = _write_models(tmp_path / name, CODE.format(channel=1), records=keeps)
        store = tmp_path / f"{name}.db"
        with _serving(folder, store, record_redact=keys) as client:
            client.headers["charioteer-trial"] = "true"
            _infer(client, 255, 0)
            del client.headers["charioteer-trial"]
            _infer(client, 255, 255)
            wait_until(lambda client=client: _images(client, "agreed") == 1)
        (one,) = _compared(store)
        assert one.answer.agreed
        assert (one.answer.records and one.answer.records[0]) == expected


@pytest.mark.parametrize(
    ("shadow_version", "versions", "record", "message"),
    [
        ("3", ["1"], True, "There is no version '3' beside the served ones"),
        ("../2", ["1"], True, "There is no version '../2' beside the served ones"),
        ("2", ["1", "2"], True, 'version \'2\' answers clients too; set "versions" to the others, such as \\["1"\\]'),
        ("1", ["1"], True, "version '1' answers clients too; set \"versions\" to the others\n"),
        ("2", ["1"], False, '"shadow" needs --record'),
    ],
)
def test_shadow_version_that_cannot_work_stops_the_start(
    tmp_path: Path, shadow_version: str, versions: list[str], record: bool, message: str
) -> None:
    folder = _write_models(tmp_path, CODE.format(channel=1), versions=versions, version=shadow_version)
    with pytest.raises(SettingsError, match=message):
        _service(folder, tmp_path / "store.db" if record else None)


def test_reload_with_a_shadow_version_that_cannot_work_is_rejected(tmp_path: Path) -> None:
    folder = _write_models(tmp_path / "models", CODE.format(channel=1))
    file = folder / "m" / "1" / "model-settings.json"
    with _serving(folder, tmp_path / "store.db") as client:
        working = file.read_text()
        file.write_text(working.replace('"2"', '"9"'))
        response = client.post("/v2/repository/models/m/load")
        reason = "Failed to load 'm': m: \"shadow\": There is no version '9' beside the served ones"
        assert (response.status_code, response.json()) == (400, {"error": reason})
        assert _infer(client, 255, 255) == "cat"
        file.write_text(working)
        # The shadow version becomes the champion, and the other way round.
        settings = json.loads(working)
        file.write_text(json.dumps({key: value for key, value in settings.items() if key != "shadow"}))
        (folder / "m" / "2" / "model-settings.json").write_text(
            json.dumps({**settings, "shadow": {"version": "1", "share": 1}})
        )
        (folder / "m" / "model-settings.json").write_text('{"versions": ["2"]}')
        assert client.post("/v2/repository/models/m/load").status_code == 200
