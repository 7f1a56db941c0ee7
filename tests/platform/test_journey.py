"""The path of a model through a fake Chariot platform to a real server: pack, serve, infer, store."""

import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from app.plugins.authoring.pack import archive, members
from tests.installed.environments import linked_environment
from tests.platform.proxy import MODELS, Platform, Registration
from tests.support.archives import unpack
from tests.support.data.chariot import image_input
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

IMAGES = ROOT / "fixtures" / "images"
KSERVE_BASE = "/v2/models/m-{id}/"
EXTENDED = [
    {"key": "altitude", "type": "float", "value": "120.50"},
    {"key": "flight", "type": "int", "value": "7"},
    {"key": "camera", "type": "dict", "value": '{"lens": "50mm"}'},
]


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Start a server of the models from the archive that `charioteer pack` writes."""
    folder = tmp_path_factory.mktemp("mnt")
    archive(ROOT / "fixtures/models", members(ROOT / "fixtures/models")[0], folder / "model.tar.gz")
    unpack(folder / "model.tar.gz", folder / "models")
    with run_server("--model-dir", str(folder / "models"), program=linked_environment().command) as server:
        yield server


def post(platform: Platform, model: str, *inputs: dict[str, Any]) -> httpx.Response:
    path = f"/api/serve/serve-model-{model}-pred/v2/models/m-{model}/infer/"
    with httpx.Client(transport=httpx.MockTransport(platform), base_url="http://chariot") as client:
        return client.post(path, json={"inputs": inputs})


def image(name: str, **parameters: object) -> dict[str, Any]:
    return image_input(encode_base64((IMAGES / name).read_bytes()), name, **parameters)


def metadata(*entries: dict[str, str]) -> str:
    return json.dumps({"standard_metadata": {}, "extended_metadata": entries})


@pytest.mark.parametrize("model", MODELS)
def test_inferences_of_every_image_task_are_stored_and_searchable(engine: ServerProcess, model: str) -> None:
    task_type, name = MODELS[model]
    platform = Platform(Registration(engine.address, KSERVE_BASE, task_type))
    parameters = {"prompts": ["what shape is it?"]} if model == "vlm" else {"action": "predict_proba"}
    answer = post(
        platform,
        model,
        image(name, metadata=metadata(*EXTENDED), **parameters),
        image("photo.jpg", metadata=json.dumps(EXTENDED[1:2]), **parameters),
        image(name, **parameters),
    )

    assert answer.status_code == 200, answer.text
    first, second, third = platform.store
    assert first.metadata == {
        "made-up.inference-server": "shapes", "altitude": 120.5, "flight": 7, "camera": {"lens": "50mm"},
    }  # fmt: skip
    assert (second.metadata, third.metadata) == ({"flight": 7}, {})
    assert first.data_hash == third.data_hash != second.data_hash
    assert first.items == third.items
    assert platform.filter_inferences("altitude", lambda value: value > 100) == [first]
    assert platform.filter_inferences("flight", lambda value: value == 7) == [first, second]
    (response,) = platform.responses
    sent = response.request.headers
    for header in ("X-Request-ID", "Chariot-Inference-Base-ID"):
        assert response.headers[header] == sent[header]
    assert first.id == f"{sent['Chariot-Inference-Base-ID']}-0"


def test_single_model_answers_at_both_base_urls_under_any_id() -> None:
    model = "0198a2b4-model"
    with run_server("--model", str(ROOT / "fixtures/models/detector")) as server:
        for base in (KSERVE_BASE, "/"):
            platform = Platform(Registration(server.address, base, "OBJECT_DETECTION"))
            assert post(platform, model, image("scene.jpg")).status_code == 200
            assert len(platform.store) == 1


def test_rejected_request_is_not_stored(engine: ServerProcess) -> None:
    platform = Platform(Registration(engine.address, KSERVE_BASE, "OBJECT_DETECTION"))
    broken = image("scene.jpg") | {"data": ["bm90IGFuIGltYWdl"]}
    answer = post(platform, "detector", image("scene.jpg"), broken)
    assert answer.status_code == 400
    assert "inputs[1].data[0]" in answer.json()["error"]
    assert platform.store == []
