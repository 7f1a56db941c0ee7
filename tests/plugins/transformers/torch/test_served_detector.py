"""Serve a vision-language model that detects objects, and record, evaluate, tile and monitor its answers.

Its weights are random. A bias in generation_config.json makes it print one box whatever the image shows.
"""

import json
import shutil
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pybase64
import pytest
from litestar import Litestar
from litestar.testing import TestClient

from app.core.assembly.discovery import model_at
from app.core.assembly.service import Service
from app.plugins.drift.sample import MIN_IMAGES
from tests.plugins.transformers.torch.asking import FolderOf, scene
from tests.support.command_line import output_of
from tests.support.data.images import encode_image
from tests.support.models import tiny_models
from tests.support.polling import wait_until
from tests.support.servers.settings import settings_of_main_port

TEXT = "<|box_start|>(100,250),(500,1000)<|box_end|>"
"""Thousandths of the image."""
WIDTH, HEIGHT = 80, 48
BOX = {"label": "cat", "xmin": 8.0, "ymin": 12.0, "xmax": 40.0, "ymax": 48.0}


class Served(NamedTuple):
    """A client of a server with the model "finder", and the model's folder."""

    client: TestClient[Litestar]
    model: Path

    def find(self, image: bytes, **parameters: object) -> dict[str, Any]:
        """Return the output for an image: its parameters, and the records as `data`."""
        data = [pybase64.b64encode(image).decode()]
        tensor = {"name": "image", "datatype": "BYTES", "shape": [1], "data": data, "parameters": parameters}
        response = self.client.post("/v2/models/m-finder/infer", json={"inputs": [tensor]})
        (output,) = response.raise_for_status().json()["outputs"]
        return {**output, "data": output["data"][0]}


def always_print(text: str, folder: Path) -> None:
    """Let a model generate a text: each token is likely after all tokens before it, the more the longer they are."""
    tokenizer: Any = tiny_models.transformers().AutoTokenizer.from_pretrained(folder)
    ids = [*tokenizer.encode(text, add_special_tokens=False), tokenizer.eos_token_id]
    config = json.loads((folder / "generation_config.json").read_text())
    config["sequence_bias"] = [[ids[:length], 1000.0 * length] for length in range(1, len(ids) + 1)]
    (folder / "generation_config.json").write_text(json.dumps(config))


def images(count: int, light: int) -> Sequence[bytes]:
    return [encode_image(scene(WIDTH, HEIGHT, seed) // 2 + light) for seed in range(count)]


@pytest.fixture(scope="module")
def served(folder_of: FolderOf, tmp_path_factory: pytest.TempPathFactory) -> Generator[Served]:
    folder = tmp_path_factory.mktemp("served")
    model = shutil.copytree(folder_of("qwen2_vl"), folder / "finder")
    always_print(TEXT, model)
    settings = {"task_type": "OBJECT_DETECTION", "parameters": {"candidate_labels": ["cat"], "max_new_tokens": 100}}
    (model / "model-settings.json").write_text(json.dumps(settings))
    (folder / "good").mkdir()
    for number, image in enumerate(images(MIN_IMAGES, 0)):
        (folder / "good" / f"{number}.png").write_bytes(image)
    baseline = model / "drift-baseline.npz"
    output_of("drift", "baseline", folder / "good", "--model", model, "--out", baseline, "--no-embeddings")
    recording = {"record": str(folder / "records.db"), "record_images": folder / "kept"}
    options = settings_of_main_port(**recording, drift=True, drift_window=MIN_IMAGES, drift_per_second=1000.0)
    with TestClient(Service(options, lambda: model_at(model)).app) as client:
        wait_until(lambda: client.get("/v2/health/ready").status_code == 200)
        yield Served(client, model)


def without_scores(records: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    return [{name: value for name, value in record.items() if name != "score"} for record in records]


def test_printed_boxes_are_recorded(served: Served) -> None:
    (image,) = images(1, 7)
    found = served.find(image)["data"]
    assert without_scores(found) == [BOX]
    assert found[0]["score"] > 0.9
    (recorded,) = served.client.get("/inferences?label=cat&limit=1").raise_for_status().json()["inferences"]
    assert (recorded["task_type"], recorded["records"]) == ("OBJECT_DETECTION", found)
    assert served.client.get(f"/inferences/{recorded['id']}/image").content == image


def test_evaluation_measures_printed_boxes(served: Served, tmp_path: Path) -> None:
    (tmp_path / "images").mkdir()
    for number, image in enumerate(images(3, 20)):
        (tmp_path / "images" / f"{number}.png").write_bytes(image)
    box = {"category_id": 1, "bbox": [8, 12, 32, 36], "iscrowd": 0}
    truths = {
        "images": [{"id": n, "file_name": f"{n}.png", "width": WIDTH, "height": HEIGHT} for n in range(3)],
        "categories": [{"id": 1, "name": "cat"}],
        # The third image shows no cat.
        "annotations": [{"id": n, "image_id": n, **box} for n in range(2)],
    }
    (tmp_path / "truths.json").write_text(json.dumps(truths))
    output_of("evaluate", tmp_path / "truths.json", "--model", served.model, "--json", tmp_path / "report.json")
    figures = json.loads((tmp_path / "report.json").read_bytes())["figures"]
    assert (figures["recall"], figures["precision"]) == (1, pytest.approx(2 / 3))


def test_each_tile_is_searched(served: Served) -> None:
    output = served.find(images(1, 9)[0], tile=40, overlap=0)
    assert output["parameters"]["tiles"] == 4
    # The whole image shows the box, and so does each tile of 40 x 40 pixels. Lower tiles cover what upper ones cut.
    found = {tuple(record[name] for name in ("xmin", "ymin", "xmax", "ymax")) for record in output["data"]}
    assert found == {(8, 12, 40, 48), (4, 18, 20, 48), (44, 18, 60, 48)}


def test_other_labels_are_drift(served: Served) -> None:
    for image in images(MIN_IMAGES, 0):
        served.find(image, candidate_labels=["dog"])
    wait_until(lambda: "finder" in served.client.get("/page/drift.json").json())
    window = served.client.get("/page/drift.json").json()["finder"][-1]
    drifted = {test["name"]: test["where"] for test in window["tests"] if test["drifted"]}
    assert "new dog" in drifted["chi-square"]
