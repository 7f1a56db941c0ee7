"""What is said of a model to those who should not know where it lies."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.engine.reasons import told, without_paths
from app.settings.model import ModelSource

FOLDER = Path("/srv/our models/detector")
SOURCE = ModelSource(name="detector", version="1", folder=FOLDER)
PART = st.text(st.characters(categories=["L", "N"], include_characters=" -_."), min_size=1).filter(
    lambda each: each.strip(" .") == each and each not in (".", "..")
)


@pytest.mark.parametrize(
    ("reason", "said"),
    [
        ("/srv/our models/detector holds no .onnx file", "detector holds no .onnx file"),
        ("/srv/our models/detector/1/model.onnx is cut short", "1/model.onnx is cut short"),
        ("/srv/our models/model-settings.json: layout: Expected", "model-settings.json: layout: Expected"),
        ("Load model from /srv/our models/detector/m.onnx failed", "Load model from m.onnx failed"),
        ("[Errno 2] No such file: '/var/cache/hub/blobs/ab12'", "[Errno 2] No such file: 'ab12'"),
        ("labels.txt: Expected 3 names, got 1/2", "labels.txt: Expected 3 names, got 1/2"),
        ("see https://example.com/a/b for more", "see https://example.com/a/b for more"),
        ("/srv/our models/detector2/model.onnx", "our models/detector2/model.onnx".removeprefix("our models/")),
    ],
)
def test_files_keep_their_names_and_lose_their_folders(reason: str, said: str) -> None:
    assert without_paths(reason, SOURCE) == said


def test_a_relative_folder_is_left_out_too() -> None:
    source = ModelSource(name="detector", version="1", folder=Path("fixtures/models/detector"))
    assert without_paths("fixtures/models/detector/model.onnx is broken", source) == "model.onnx is broken"
    assert without_paths(f"{Path.cwd()}/fixtures/models/detector/x is broken", source) == "x is broken"


@given(st.lists(PART, min_size=2, max_size=5))
def test_no_folder_above_the_model_is_ever_named(parts: list[str]) -> None:
    folder = Path("/", "hidden-root", *parts)
    said = without_paths(
        f"{folder}/model.onnx and '{folder}' are wrong", ModelSource(name="m", version="1", folder=folder)
    )
    assert "hidden-root" not in said
    assert said.endswith("are wrong")


class _MuteError(Exception):
    def __str__(self) -> str:
        raise ValueError("nothing to say")


def test_an_exception_that_says_nothing_is_named() -> None:
    assert told(ValueError("five")) == "five"
    assert told(MemoryError()) == "MemoryError"
    assert told(_MuteError()) == "_MuteError"
