"""Annotations of Label Studio become truths."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest
from litestar.testing import TestClient

from app.core.assembly.models import find_models
from app.core.assembly.service import Service
from app.core.settings.server import ModelOptions
from tests.support.data.images import encode_base64
from tests.support.servers.server_process import ROOT
from tests.support.servers.settings import settings_of_main_port

RECORDED: list[Any] = json.loads((Path(__file__).parent / "label_studio_requests.json").read_text())
SCENE = encode_base64((ROOT / "fixtures" / "images" / "scene.jpg").read_bytes())


@pytest.mark.slow
def test_annotation_of_a_predicted_task_is_its_truth_in_labels_of_the_model(tmp_path: Path) -> None:
    predict, created, updated = (RECORDED[index]["body"] for index in (2, 4, 5))
    task = predict["tasks"][0]
    task["data"]["image"] = f"data:image/jpeg;base64,{SCENE}"
    settings = settings_of_main_port(record=str(tmp_path / "store.db"), serve_truth=True, label_studio=True, workers=1)
    options = ModelOptions(model=ROOT / "fixtures" / "models" / "detector")
    service = Service(settings, lambda: find_models(options))
    loaded = threading.Event()
    service.loading.when_finished = lambda _: loaded.set()
    with TestClient(service.app) as client:
        assert loaded.wait(60)
        assert client.post("/label-studio/detector/predict", json=predict).status_code == 200
        (recorded,) = client.get("/inferences").json()["inferences"]

        def send(event: dict[str, Any], **fields: object) -> Any:
            return client.post("/label-studio/detector/webhook", json={**event, "task": task, **fields}).json()

        def truth() -> Any:
            return client.get(f"/inferences/{recorded['id']}/truth").json()

        assert send(created, task={**task, "id": 99})["result"] == {"result": "unknown"}
        assert send(created)["result"] == {"result": "matched", "ids": [recorded["id"]]}
        # The project calls these labels Circle and Star, and has none for the third object.
        assert [record["label"] for record in truth()["records"]] == ["yellow circle", "purple star"]
        assert (truth()["verdict"], truth()["complete"], truth()["source"]) == ("right", False, "label-studio")
        send(updated)
        assert len(truth()["records"]) == 1
        assert send(created, annotation={**created["annotation"], "was_cancelled": True})["result"] == {}
        brush: dict[str, object] = {"result": [{"type": "brushlabels", "value": {}}]}
        error = send(created, annotation=brush)["result"]["error"]
        assert "Expected rectanglelabels, polygonlabels or choices" in error
        assert "--" not in error
        relation = {"type": "relation", "from_id": "a", "to_id": "b", "direction": "right"}
        assert send(created, annotation={"result": [relation, *created["annotation"]["result"]]})["result"]["ids"]
        assert len(truth()["records"]) == 2
        taxonomy = {"type": "taxonomy", "value": {"taxonomy": [["a"]]}}
        for region in (5, {"type": "rating", "value": {"rating": 5}}, taxonomy):
            assert send(created, annotation={"result": [region]})["result"]["result"] == "invalid"
        assert send(created, annotation={"result": 5})["error"] == "annotation.result: Expected `array`, got `int`"
        config = created["project"]["label_config"].replace("yellow circle", "yellow circle,green square")
        assert "stands for several of the model" in send(created, project={"label_config": config})["error"]
