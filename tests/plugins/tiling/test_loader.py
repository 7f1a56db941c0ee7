"""Models get tiles from their settings or requests, wherever they run."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.assembly.discovery import discover
from app.core.assembly.models import describe, load, through_loaders
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from app.plugins.explanations.request import explain_request
from app.plugins.jatic.maite import as_maite
from app.plugins.tiling.step import TilingStep
from tasks.inference.limits import Limits
from tests.plugins.tiling.spots import answer, canvas, plain, request
from tests.support.command_line import output_of
from tests.support.rejection import rejects
from tests.support.servers.server_process import ROOT

MODELS = ROOT / "fixtures" / "models"


def source(tmp_path: Path, model: str = "detector", **settings: Any) -> ModelSource:
    folder = tmp_path / model
    shutil.copytree(MODELS / model, folder)
    (folder / "model-settings.json").write_bytes(msgspec.json.encode(settings))
    (found,) = discover(folder)
    return found


def fact(model: ModelSource) -> tuple[str, str] | None:
    return next(((fact.value, str(fact.origin)) for fact in describe(model).facts if fact.topic == "tiles"), None)


def tiles(servable: Any, **parameters: object) -> object:
    result = answer(servable, np.zeros((600, 500, 3), np.uint8), **parameters)
    return result.outputs[0].parameters.get("tiles")


@pytest.mark.parametrize(
    ("settings", "expected", "count"),
    [
        ({}, None, None),
        ({"tiling": {}}, ("192x192 pixels, overlap 0.2 and the whole image, join", "model-settings.json"), 12),
        ({"tiling": {"size": 0}}, None, None),
    ],
)
def test_check_shows_the_tiles_and_requests_get_them(
    tmp_path: Path, settings: dict[str, Any], expected: Any, count: int | None
) -> None:
    model = source(tmp_path, **settings)
    assert fact(model) == expected
    servable = load(model)
    assert tiles(servable) == count
    assert tiles(servable, tile=300, overlap=0) == 4


@pytest.mark.parametrize(
    ("model", "settings", "message"),
    [
        ("classifier", {"tiling": {}}, "for models that find objects in images, not for IMAGE_CLASSIFICATION"),
        ("detector", {"tiling": {"size": 5}}, r"tiling: size: Expected 16\.\.16384 pixels"),
        ("detector", {"tiling": {"sizes": 5}}, r"tiling: Object contains unknown field `sizes`"),
    ],
)
def test_tiles_that_are_not_possible_are_rejected(
    tmp_path: Path, model: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ModelError, match=message):
        load(source(tmp_path, model, **settings))


@pytest.mark.parametrize(("model", "offered"), [("detector", ["tile", "overlap"]), ("classifier", [])])
def test_parameters_are_offered_for_models_that_find_objects(tmp_path: Path, model: str, offered: list[str]) -> None:
    names = load(source(tmp_path, model)).parameter_names
    assert [name for name in names if name in ("tile", "overlap")] == offered
    assert "score_threshold" in names


def test_model_of_maite_is_tiled() -> None:
    image = np.zeros((600, 500, 3), np.uint8)
    image[250:310, 200:260] = 255, 0, 0
    (found,) = as_maite(MODELS / "detector", tile=192)([image.transpose(2, 0, 1)])
    best: Any = found
    assert best.boxes[best.scores.argmax()].tolist() == pytest.approx([200, 250, 260, 310], abs=4)


def test_model_that_another_process_loads_is_tiled_here_and_isolated_there(tmp_path: Path) -> None:
    def load_remote(_: ModelSource) -> Servable:
        return plain("box")

    servable = through_loaders(source(tmp_path, isolate=True), "load", load_remote, remote=True)
    assert isinstance(servable.split_step, TilingStep)
    assert tiles(servable, tile=192) == 12


def test_explanations_of_tiled_answers_are_rejected(tmp_path: Path) -> None:
    servable = load(source(tmp_path, tiling={}))
    with rejects("Explanations are for the whole image, not for tiles: send 0", "inputs[0].parameters.tile"):
        explain_request(servable, request(canvas()), Limits(), lambda: True)
    assert explain_request(servable, request(canvas(), tile=0), Limits(), lambda: True).samples == 0


def test_predict_cuts_an_image_if_its_parameters_say_so() -> None:
    def labels(*options: str) -> list[str]:
        output = output_of("predict", "fixtures/images/scene.jpg", "--model", MODELS / "detector", "--json", *options)
        return [record["label"] for record in json.loads(output)]

    assert labels("--parameter", "tile=192") != labels() == labels("--parameter", "tile=0")


def test_tile_that_is_not_possible_is_rejected_by_predict() -> None:
    options = ("--model", MODELS / "detector", "--parameter", "tile=3")
    message = "--parameter tile: Expected 16..16384 pixels"
    assert message in output_of("predict", "fixtures/images/scene.jpg", *options, status=1)
