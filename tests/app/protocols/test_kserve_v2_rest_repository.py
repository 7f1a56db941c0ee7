"""Triton's repository and statistics extensions over REST, with graphs on disk that change while requests come."""

import asyncio
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.assembly.discovery import discover
from app.assembly.models import FIXTURE_MODELS, load
from tests.support.chariot import PICTURE, Client, image_input
from tests.support.served import application, build

TWO = (FIXTURE_MODELS / "half_plus_two" / "model.onnx").read_bytes()
THREE = (FIXTURE_MODELS / "half_plus_three" / "model.onnx").read_bytes()

REQUEST = {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1], "data": [1]}]}

LOAD = "/v2/repository/models/{}/load"
UNLOAD = "/v2/repository/models/{}/unload"


def write(root: Path, name: str, content: bytes) -> None:
    """Put a model file in its place in one step, as a deployment should."""
    (root / name).mkdir(parents=True, exist_ok=True)
    (root / name / "new").write_bytes(content)
    (root / name / "new").replace(root / name / "model.onnx")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A repository of one model in two versions, and another."""
    write(tmp_path, "half/1", TWO)
    write(tmp_path, "half/2", THREE)
    write(tmp_path, "other", TWO)
    return tmp_path


@pytest.fixture
def client(root: Path) -> Iterator[TestClient[Litestar]]:
    with TestClient(application(discover(root), load)) as client:
        yield client


@pytest.fixture
def changing(root: Path) -> Generator[tuple[TestClient[Litestar], Path]]:
    """An application that looks at the disk anew at every load, and the disk."""
    with TestClient(application(discover(root), load, discovered=lambda: discover(root))) as client:
        yield client, root


def answer(client: Client, model: str) -> float:
    """What a model makes of 1."""
    response = client.post(f"/v2/models/{model}/infer", json=REQUEST)
    assert response.status_code == 200, response.text
    return response.json()["outputs"][0]["data"][0]


def index(client: Client, **body: object) -> dict[tuple[str, str], tuple[str, str]]:
    """State and reason, by name and version."""
    response = client.post("/v2/repository/index", json=body) if body else client.post("/v2/repository/index")
    assert response.status_code == 200
    return {(each["name"], each["version"]): (each["state"], each["reason"]) for each in response.json()}


def test_versions(client: Client) -> None:
    assert answer(client, "half") == 3.5, "the latest"
    assert answer(client, "half/versions/1") == 2.5
    assert answer(client, "half/versions/2") == 3.5
    assert client.get("/v2/models/half").json()["versions"] == ["1", "2"]
    assert client.get("/v2/models/half/versions/1").json()["name"] == "half"
    assert client.get("/v2/models/half/versions/3").status_code == 404
    assert client.post("/v2/models/half/infer", json=REQUEST).json()["model_version"] == "2"


def test_the_index_lists_every_version(client: Client) -> None:
    ready = ("READY", "")
    assert index(client) == {("half", "1"): ready, ("half", "2"): ready, ("other", "1"): ready}
    assert index(client, ready=True) == index(client)
    assert client.post("/v2/repository/index", content=b"{").status_code == 400
    assert client.post("/v2/repository/index", json={"ready": "yes"}).status_code == 400


def test_unloading_and_loading(client: Client) -> None:
    assert client.post(UNLOAD.format("half")).status_code == 200
    response = client.post("/v2/models/half/infer", json=REQUEST)
    assert response.status_code == 503
    assert list(response.json()) == ["error"]
    for path in ("/v2/models/half", "/v2/models/half/ready", "/v2/models/half/versions/1/ready"):
        assert client.get(path).status_code == 503
    assert index(client) == {
        ("half", "1"): ("UNAVAILABLE", "unloaded"),
        ("half", "2"): ("UNAVAILABLE", "unloaded"),
        ("other", "1"): ("READY", ""),
    }
    assert list(index(client, ready=True)) == [("other", "1")]
    assert client.get("/v2/health/ready").json() == {"ready": True}, "unloaded on purpose is no fault"
    assert answer(client, "other") == 2.5
    assert client.post(UNLOAD.format("half")).status_code == 200, "once more changes nothing"
    assert client.post(LOAD.format("half"), json={"parameters": {}}).status_code == 200
    assert answer(client, "half") == 3.5
    assert index(client)["half", "1"] == ("READY", "")


@pytest.mark.parametrize(
    "parameters",
    [
        {"config": '{"uri": "/etc/passwd"}'},
        {"file:1/model.onnx": "AAAA"},
        {"file:../../etc/cron.d/x": "AAAA"},
        {"uri": "http://127.0.0.1:1/model.onnx"},
        {"path": "/etc"},
        {"url": "file:///etc/passwd"},
        {"unload_dependents": False},
    ],
)
def test_a_load_takes_no_settings_files_or_addresses(root: Path, client: Client, parameters: Any) -> None:
    before = sorted(root.rglob("*"))
    response = client.post(LOAD.format("other"), json={"parameters": parameters})
    assert response.status_code == 400
    assert "Models are loaded from disk without parameters" in response.json()["error"]
    assert sorted(root.rglob("*")) == before
    assert answer(client, "other") == 2.5


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"parameters": 1}', b'{"parameters": "' + b"x" * 100 + b'"}'])
def test_a_load_of_a_body_that_is_none(client: Client, body: bytes) -> None:
    assert client.post(LOAD.format("other"), content=body).status_code == 400


def test_the_body_of_a_load_is_bounded_as_others_are(client: Client) -> None:
    for body, said in (
        (b'{"parameters": {"x": %s}}' % (b"[" * 200 + b"]" * 200), "Expected JSON nested 100 deep at most"),
        (b'{"parameters": {"%s": 1}}' % (b"n" * 1025), "Expected at most 1,024 bytes in the name of a member"),
    ):
        response = client.post(LOAD.format("half"), content=body)
        assert response.status_code in (400, 413)
        assert said in response.json()["error"]


@pytest.mark.parametrize("name", ["nobody", "..", "%2e%2e", "..%2f..%2fetc", "%00"])
@pytest.mark.parametrize("path", [LOAD, UNLOAD])
def test_models_that_are_not_there(client: Client, path: str, name: str) -> None:
    response = client.post(path.format(name))
    assert response.status_code in (404, 405)
    assert list(response.json()) == ["error"]


def test_a_changed_file_is_served_after_a_load(changing: tuple[TestClient[Litestar], Path]) -> None:
    client, root = changing
    assert answer(client, "other") == 2.5
    write(root, "other", THREE)
    assert answer(client, "other") == 2.5
    assert client.post(LOAD.format("other")).status_code == 200
    assert answer(client, "other") == 3.5


def test_a_new_model_and_a_new_version(changing: tuple[TestClient[Litestar], Path]) -> None:
    client, root = changing
    write(root, "new", THREE)
    write(root, "half/10", TWO)
    assert index(client)["new", "1"] == ("UNAVAILABLE", "not loaded")
    assert client.get("/v2/models/new/ready").status_code == 404
    assert client.get("/v2/health/ready").status_code == 200
    for name in ("new", "half"):
        assert client.post(LOAD.format(name)).status_code == 200
    assert answer(client, "new") == 3.5
    assert answer(client, "half") == 2.5, "version 10 comes after 2"


def test_a_broken_file_leaves_the_old_model_serving(changing: tuple[TestClient[Litestar], Path]) -> None:
    client, root = changing
    write(root, "other", b"not a model")
    response = client.post(LOAD.format("other"))
    assert response.status_code == 503
    assert "Failed to load 'other'" in response.json()["error"]
    assert answer(client, "other") == 2.5
    write(root, "other", THREE)
    assert client.post(LOAD.format("other")).status_code == 200
    assert answer(client, "other") == 3.5


def test_a_version_that_is_gone(changing: tuple[TestClient[Litestar], Path]) -> None:
    client, root = changing
    (root / "half" / "2" / "model.onnx").unlink()
    assert client.post(LOAD.format("half")).status_code == 200
    assert answer(client, "half") == 2.5
    assert client.get("/v2/models/half/versions/2").status_code == 404


def test_no_request_fails_in_fifty_reloads(root: Path) -> None:
    app = application(discover(root), load, discovered=lambda: discover(root))
    answers: list[float] = []

    async def ask(client: httpx.AsyncClient, done: asyncio.Event) -> None:
        while not done.is_set():
            response = await client.post("/v2/models/other/infer", json=REQUEST)
            assert response.status_code == 200, response.text
            answers.append(response.json()["outputs"][0]["data"][0])

    async def reload(client: httpx.AsyncClient, done: asyncio.Event) -> None:
        try:
            for turn in range(50):
                write(root, "other", TWO if turn % 2 else THREE)
                assert (await client.post(LOAD.format("other"))).status_code == 200
                now = (await client.post("/v2/models/other/infer", json=REQUEST)).json()
                assert now["outputs"][0]["data"] == [2.5 if turn % 2 else 3.5]
        finally:
            done.set()

    async def run() -> None:
        done = asyncio.Event()
        transport = httpx.ASGITransport(app=cast("Any", app))
        async with httpx.AsyncClient(transport=transport, base_url="http://charioteer", timeout=60) as client:
            await asyncio.gather(reload(client, done), *(ask(client, done) for _ in range(4)))

    asyncio.run(run())
    assert len(answers) > 50
    assert set(answers) == {2.5, 3.5}


def stats(client: Client, path: str = "") -> dict[str, Any]:
    """The entry of the only model version that `path` means."""
    response = client.get(f"/v2/models{path}/stats")
    assert response.status_code == 200
    (entry,) = response.json()["model_stats"]
    return entry


def test_statistics_count_inferences_and_executions() -> None:
    with TestClient(build(("detector",))) as client:
        before = stats(client)
        assert (before["name"], before["version"], before["last_inference"], before["inference_count"]) == (
            "detector",
            "1",
            0,
            0,
        )
        assert before["batch_stats"] == []
        for pictures in ([PICTURE], [PICTURE] * 3, [PICTURE] * 3):
            assert client.post("/v2/models/detector/infer", json={"inputs": [image_input(pictures)]}).is_success
        assert client.post("/v2/models/detector/infer", json={"inputs": [image_input("aGk=")]}).status_code == 400
        for path in ("", "/detector", "/detector/versions/1"):
            after = stats(client, path)
            assert (after["inference_count"], after["execution_count"]) == (7, 3)
            assert [(each["batch_size"], each["compute_infer"]["count"]) for each in after["batch_stats"]] == [
                (1, 1),
                (3, 2),
            ]
            counts = {name: duration["count"] for name, duration in after["inference_stats"].items()}
            assert counts == {
                **dict.fromkeys(("success", "queue", "compute_input", "compute_infer", "compute_output"), 3),
                "fail": 1,
                "cache_hit": 0,
                "cache_miss": 0,
            }
            assert after["last_inference"] > 1.6e12, "milliseconds"
        spent = after["inference_stats"]
        parts = sum(spent[name]["ns"] for name in ("queue", "compute_input", "compute_infer", "compute_output"))
        assert 0 < parts <= spent["success"]["ns"]


def test_statistics_of_every_model_and_version(client: Client) -> None:
    entries = client.get("/v2/models/stats").json()["model_stats"]
    assert [(each["name"], each["version"]) for each in entries] == [("half", "1"), ("half", "2"), ("other", "1")]
    answer(client, "half/versions/1")
    assert stats(client, "/half/versions/1")["inference_count"] == 1
    assert stats(client, "/half/versions/2")["inference_count"] == 0
    assert len(client.get("/v2/models/half/stats").json()["model_stats"]) == 2
    for path in ("nobody", "half/versions/3"):
        assert client.get(f"/v2/models/{path}/stats").status_code == 404
