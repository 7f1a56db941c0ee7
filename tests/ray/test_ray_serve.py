"""The application on a real Ray: processes for the ingress and for models, killed, scaled and changed under load."""

import shutil
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import msgspec
import pytest

from app.assembly.in_process import InProcessModel
from tasks.vision.image import decode_image
from tests.ray.driver import SCENE, Ray, body, sending, started
from tests.support.own_packages import make_project
from tests.support.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
SMALL = {"ray_actor_options": {"num_cpus": 0.5}, "graceful_shutdown_wait_loop_s": 0.1}
ONE = {**SMALL, "num_replicas": 1}
TWO = {**SMALL, "num_replicas": 2}
SHARED = {"model_repository": str(MODELS), "multiplexed": 2, "ingress": ONE, "models": ONE}
NUMBERS = {"inputs": [{"name": "x", "shape": [2], "datatype": "FP32", "data": [1.0, 2.0]}]}

MORTAL = """
import os
from pathlib import Path

LIVES = Path(__file__).with_name("lives")


class Mortal:
    def predict(self, images):
        lives = int(LIVES.read_text())
        if lives:
            LIVES.write_text(str(lives - 1))
            os._exit(1)
        found = {"label": str(len(images)), "score": 1.0, "xmin": 0, "ymin": 0, "xmax": 1, "ymax": 1}
        return [[found] for _ in images]
"""
"""A model that ends its process so many times, and then says how many pictures it was given at once."""


@pytest.mark.slow
def test_on_a_real_ray(tmp_path: Path) -> None:
    """One after the other on one Ray, which takes ten seconds to start and most of two cores.

    It is started in the folder of a project that has packages of our names.
    """
    with started(make_project(tmp_path / "project")) as ray:
        many_models_share_a_deployment_and_every_protocol_answers(ray)
        another_threshold_and_another_model_are_taken_up_without_a_pause(ray, tmp_path)
        a_killed_replica_loses_no_request(ray)
        calls_whose_replica_dies_are_repeated_by_the_ingress_and_put_together(ray, tmp_path)
        replicas_come_and_go_with_the_load(ray)


def many_models_share_a_deployment_and_every_protocol_answers(ray: Ray) -> None:
    ray.deploy(SHARED)
    assert len(ray.tell("processes", deployment="models")) == 1
    assert ray.infer("detector") == records(MODELS / "detector")
    # Two models fit into a replica, so that the others take turns.
    for name in ("segmenter", "classifier", "oriented-detector", "detector"):
        assert ray.infer(name) != []
    v2 = httpx.post(f"{ray.address}/v2/models/half_plus_two/infer", json=NUMBERS, timeout=60)
    assert v2.json()["outputs"][0]["data"] == [2.5, 3.0]
    v1 = httpx.post(f"{ray.address}/v1/models/half_plus_two:predict", json={"instances": [1.0, 2.0]}, timeout=60)
    assert v1.json()["predictions"] == [2.5, 3.0]
    assert httpx.get(f"{ray.address}/v2/health/ready", timeout=60).status_code == 200
    refused = httpx.post(f"{ray.address}/v2/models/m-detector/infer", json={"inputs": []}, timeout=60)
    assert refused.status_code == 400
    unknown = httpx.post(f"{ray.address}/v2/models/none/infer", json=NUMBERS, timeout=60)
    assert unknown.status_code == 404
    # Of a browser that another site's page has send it.
    foreign = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert httpx.post(f"{ray.address}/grps/v1/health/online", headers=foreign, timeout=60).status_code == 403


def another_threshold_and_another_model_are_taken_up_without_a_pause(ray: Ray, folder: Path) -> None:
    before, after = records(MODELS / "detector"), records(MODELS / "detector", score_threshold=0.975)
    assert 1 < len(after) < len(before)
    changed = folder / "models"
    shutil.copytree(MODELS / "detector", changed / "detector")
    (changed / "detector" / "model-settings.json").write_text('{"parameters": {"top_k": 1}}')
    served = [ray.tell("processes", deployment=each) for each in ("ingress", "models")]
    with sending(ray, "detector") as senders:
        ray.deploy(SHARED, {"model_repository": str(MODELS), "score_threshold": 0.975})
        assert ray.until(lambda: len(after) in senders.answers)
        ray.deploy(SHARED, {"model_repository": str(changed)})
        assert ray.until(lambda: 1 in senders.answers)
        # What cannot be taken up leaves everything as it is.
        for mistake in ({"model": "/nowhere"}, {"folder": str(changed)}):
            ray.deploy(SHARED, mistake)
            answered = senders.answers[1]
            assert ray.until(lambda answered=answered: senders.answers[1] > answered + 4)
    assert senders.answers.keys() == {len(before), len(after), 1}
    assert (senders.lost, senders.retries) == ([], 0)
    assert [ray.tell("processes", deployment=each) for each in ("ingress", "models")] == served


def a_killed_replica_loses_no_request(ray: Ray) -> None:
    ray.deploy({"model": str(MODELS / "detector"), "ingress": TWO, "models": TWO})
    with sending(ray, "detector") as senders:
        killed = ray.tell("kill", deployment="model-detector")
        answered = senders.answers.total()
        assert ray.until(lambda: senders.answers.total() > answered + 20)
        assert ray.until(lambda: killed not in ray.tell("processes", deployment="model-detector"))
        # The ingress repeats what a model's replica had in hand; its clients notice nothing.
        assert senders.retries == 0
        killed = ray.tell("kill", deployment="ingress")
        answered = senders.answers.total()
        assert ray.until(lambda: senders.answers.total() > answered + 20)
        # What an ingress's replica had in hand is repeated by clients: each had at most one request there.
        assert senders.retries <= 8
        assert ray.until(lambda: ray.tell("running", deployment="ingress") == 2)
    assert senders.lost == []
    assert list(senders.answers) == [len(records(MODELS / "detector"))]


def calls_whose_replica_dies_are_repeated_by_the_ingress_and_put_together(ray: Ray, folder: Path) -> None:
    model = folder / "mortal"
    model.mkdir()
    (model / "model.py").write_text(MORTAL)
    (model / "model-settings.json").write_text('{"implementation": "model:Mortal", "task_type": "OBJECT_DETECTION"}')
    (model / "lives").write_text("1")
    waiting = {"batch_size": 4, "batch_wait_seconds": 1.0, "retries": 1}
    ray.deploy({"model": str(model), "allow_code": True, **waiting, "ingress": ONE, "models": ONE})
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ray.infer, ["mortal"] * 4))
    assert max(int(each["label"]) for answer in answers for each in answer) > 1
    (model / "lives").write_text("2")
    answer = httpx.post(f"{ray.address}/v2/models/m-mortal/infer", content=body(SCENE, {}), timeout=60)
    assert answer.status_code == 500
    assert "2 replicas of the model were lost during the same call" in answer.text


def replicas_come_and_go_with_the_load(ray: Ray) -> None:
    scaling = {
        "min_replicas": 1,
        "max_replicas": 2,
        "target_ongoing_requests": 1,
        "upscale_delay_s": 0.5,
        "downscale_delay_s": 1.0,
        "metrics_interval_s": 0.2,
        "look_back_period_s": 1.0,
    }
    models = {**SMALL, "autoscaling_config": scaling}
    ray.deploy({"model": str(MODELS / "detector"), "ingress": ONE, "models": models})
    assert ray.tell("running", deployment="model-detector") == 1
    with sending(ray, "detector", 6) as senders:
        assert ray.until(lambda: ray.tell("running", deployment="model-detector") == 2)
    with sending(ray, "detector", 1) as rest:
        assert ray.until(lambda: ray.tell("running", deployment="model-detector") == 1)
    assert (senders.lost, senders.retries) == ([], 0)
    assert (rest.lost, rest.retries) == ([], 0)


def records(model: Path, **parameters: object) -> Sequence[object]:
    """What the model says in this process."""
    found = InProcessModel(model).ask(decode_image(SCENE.read_bytes()).pixels, **parameters)
    return msgspec.json.decode(msgspec.json.encode(found))
