"""The application on a real Ray: replicas of the ingress and of models are killed, scaled and changed under load."""

import base64
import shutil
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from app.plugins.drift.baseline import Baseline, write_baseline
from app.public_api.in_process import InProcessModel
from tasks.vision.image import decode_image
from tests.plugins.acme.process import python_model
from tests.plugins.bulk_run.test_command import answers, run, write_images
from tests.plugins.ray.driver import SCENE, Ray, body, start_ray, traffic
from tests.support.data.drift_samples import sample
from tests.support.models.colliding_packages import make_project
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"
SMALL = {
    "ray_actor_options": {"num_cpus": 0.5},
    "graceful_shutdown_wait_loop_s": 0.1,
    # Lost replicas are noticed at the next check, by default after ten seconds.
    "health_check_period_s": 1,
    "health_check_timeout_s": 300,
}
ONE = {**SMALL, "num_replicas": 1}
TWO = {**SMALL, "num_replicas": 2}
PATIENT = {"timeout_seconds": 300}
SHARED = {**PATIENT, "allow_code": True, "multiplexed": 2, "ingress": ONE, "models": ONE}
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
"""A model that ends its process a number of times, and then reports how many images one call had."""


@pytest.fixture(scope="module")
def ray(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ray]:
    """Run one Ray for all tests, because it takes ten seconds to start and most of two cores.

    It is started in the folder of a project that has packages of our names.
    """
    with start_ray(make_project(tmp_path_factory.mktemp("ray") / "project")) as ray:
        yield ray


@pytest.fixture(scope="module")
def shared(ray: Ray, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, object]:
    """Deploy models that share replicas, and return the arguments of the application."""
    arguments = {**SHARED, "model_repository": str(repository(tmp_path_factory.mktemp("shared")))}
    ray.deploy(arguments)
    return arguments


def repository(folder: Path) -> Path:
    """Link the fixture models, and write one for a plugin of a third party."""
    (folder / "counter").mkdir(parents=True)
    python_model(folder / "counter")
    for model in MODELS.glob("*/"):
        (folder / model.name).symlink_to(model)
    return folder


def test_lost_worker_changes_no_result_of_a_run(ray: Ray, tmp_path: Path) -> None:
    model, images = MODELS / "detector", write_images(tmp_path / "images", 130)
    report = ray.run_command("bulk", model=str(model), images=str(images), output=str(tmp_path / "out"))
    assert (report["status"], report["killed"]) == (0, 1)
    assert run(images, tmp_path / "local")[0] == 0
    assert answers(tmp_path / "out") == answers(tmp_path / "local")
    # The pipeline with `ray_map` reads one of two folders.
    assert len(report["rows"]) == 66
    assert report["rows"][0] == ["000.jpg", ["yellow circle", "purple star"], None]
    assert report["rows"][-1] == ["bad.jpg", None, "invalid_request"]


@pytest.mark.usefixtures("shared")
def test_shared_deployment_answers_over_every_protocol(ray: Ray) -> None:
    assert len(ray.run_command("processes", deployment="models")) == 1
    assert ray.infer("detector") == records(MODELS / "detector")
    # A replica holds two models, so the others are swapped in.
    for name in ("segmenter", "classifier", "oriented-detector", "detector"):
        assert ray.infer(name) != []
    v2 = ray.client.post("/v2/models/half_plus_two/infer", json=NUMBERS)
    assert v2.json()["outputs"][0]["data"] == [2.5, 3.0]
    assert len(v2.headers.get_list("x-request-id")) == 1
    v1 = ray.client.post("/v1/models/half_plus_two:predict", json={"instances": [1.0, 2.0]})
    assert v1.json()["predictions"] == [2.5, 3.0]
    assert ray.client.get("/v2/health/ready").status_code == 200
    rejected = ray.client.post("/v2/models/m-detector/infer", json={"inputs": []})
    assert rejected.status_code == 400
    unknown = ray.client.post("/v2/models/none/infer", json=NUMBERS)
    assert unknown.status_code == 404
    assert "error" in unknown.json()
    # The task type and the parameter of a third party's plugin reach the model, which runs in another process.
    assert ray.infer("counter", greet="Ada")[0] == {"label": "Ada", "score": 0.75}
    # A page of another site makes a browser send this.
    foreign = {"Origin": "https://evil.example", "Content-Type": "text/plain"}
    assert ray.client.post("/grps/v1/health/online", headers=foreign).status_code == 403


@pytest.mark.usefixtures("shared")
def test_answers_are_counted_and_explained(ray: Ray) -> None:
    image = base64.b64encode(SCENE.read_bytes()).decode()
    place = {"type": "image_url", "image_url": {"url": f"data:image/jpeg;base64,{image}"}}
    messages = [{"role": "user", "content": [place, {"type": "text", "text": "What?"}]}]
    chat = {"model": "vlm", "messages": messages, "max_tokens": 1}
    completion = ray.client.post("/openai/v1/chat/completions", json=chat).json()
    # Only the replica has the tokenizer.
    assert completion["usage"]["prompt_tokens"] > completion["usage"]["completion_tokens"] == 1
    assert completion["choices"][0]["finish_reason"] == "length"
    rows = ray.client.post("/v1/models/half_plus_two:explain", json={"instances": [1.0, 2.0]})
    assert [row["importance_scores"] for row in rows.json()["explanations"]] == [[0.5], [1.0]]


def test_models_change_without_interruption(ray: Ray, shared: Mapping[str, object], tmp_path: Path) -> None:
    before, after = records(MODELS / "detector"), records(MODELS / "detector", score_threshold=0.975)
    assert 1 < len(after) < len(before)
    changed = tmp_path / "models"
    shutil.copytree(MODELS / "detector", changed / "detector")
    (changed / "detector" / "model-settings.json").write_text('{"parameters": {"top_k": 1}}')
    processes = [ray.run_command("processes", deployment=name) for name in ("ingress", "models")]
    with traffic(ray, "detector") as clients:
        ray.deploy(shared, {"model_repository": str(MODELS), "score_threshold": 0.975})
        assert ray.wait_for(lambda: len(after) in clients.answers)
        ray.deploy(shared, {"model_repository": str(changed)})
        assert ray.wait_for(lambda: 1 in clients.answers)
        # An invalid change leaves everything as it is.
        for mistake in ({"model": "/nowhere"}, {"folder": str(changed)}):
            ray.deploy(shared, mistake)
            answered = clients.answers[1]
            assert ray.wait_for(lambda answered=answered: clients.answers[1] > answered + 4)
    assert clients.answers.keys() == {len(before), len(after), 1}
    assert (clients.failed, clients.retries) == ([], 0)
    assert [ray.run_command("processes", deployment=name) for name in ("ingress", "models")] == processes


def test_killed_replica_loses_no_request_and_no_record(ray: Ray, tmp_path: Path) -> None:
    model, store = tmp_path / "watched" / "detector", tmp_path / "inferences.db"
    shutil.copytree(MODELS / "detector", model)
    baseline = sample(40, with_predictions=True, with_embeddings=False)
    write_baseline(model / "drift-baseline.npz", Baseline(sample=baseline))
    settings = {"record": str(store), "drift": True, "drift_per_second": 1000}
    ray.deploy({**PATIENT, "model": str(model), "settings": settings, "ingress": TWO, "models": TWO})
    with traffic(ray, "detector") as clients:
        # The ingress repeats requests that were in flight in a model's replica; clients notice nothing. Clients repeat
        # requests that were in flight in an ingress replica, because they get 500: at most one a client.
        for deployment, max_retries in (("model-detector", 0), ("ingress", 8)):
            killed = ray.run_command("kill", deployment=deployment)
            answered = clients.answers.total()
            assert ray.wait_for(lambda answered=answered: clients.answers.total() > answered + 20)
            assert ray.wait_for(
                lambda killed=killed, deployment=deployment: (
                    killed not in ray.run_command("processes", deployment=deployment)
                )
            )
            assert clients.retries <= max_retries
        assert ray.wait_for(lambda: ray.run_command("running", deployment="ingress") == 2)
        # Each replica of the ingress has its own metrics, and requests alternate between them.
        measured = 'charioteer_drift_images_total{model="detector",outcome="measured"}'
        assert ray.wait_for(lambda: measured in ray.client.get("/metrics").text)
    assert clients.failed == []
    assert list(clients.answers) == [len(records(MODELS / "detector"))]
    with closing(sqlite3.connect(store)) as connection:
        recorded = [row[0] for row in connection.execute("SELECT request_id FROM recordings WHERE error IS NULL")]
    assert set(clients.answered) <= set(recorded)


def test_ingress_batches_and_retries_lost_calls(ray: Ray, tmp_path: Path) -> None:
    model = tmp_path / "mortal"
    model.mkdir()
    (model / "model.py").write_text(MORTAL)
    (model / "model-settings.json").write_text('{"implementation": "model:Mortal", "task_type": "OBJECT_DETECTION"}')
    (model / "lives").write_text("1")
    waiting = {**PATIENT, "batch_size": 4, "batch_wait_seconds": 1.0, "retries": 1}
    ray.deploy({"model": str(model), "allow_code": True, **waiting, "ingress": ONE, "models": ONE})
    with ThreadPoolExecutor(4) as threads:
        answers = list(threads.map(ray.infer, ["mortal"] * 4))
    assert max(int(record["label"]) for answer in answers for record in answer) > 1
    (model / "lives").write_text("2")
    answer = ray.client.post("/v2/models/m-mortal/infer", content=body(SCENE, {}))
    assert answer.status_code == 500
    assert "2 replicas of the model were lost during the same call" in answer.text


def records(model: Path, **parameters: object) -> Sequence[object]:
    """Return the records of the model in this process."""
    result = InProcessModel(model).ask(decode_image(SCENE.read_bytes()).pixels, **parameters)
    return msgspec.json.decode(msgspec.json.encode(result))
