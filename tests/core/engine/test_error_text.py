"""Error texts for clients, without the folders of the server."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.core.engine.error_text import error_text, redact_paths
from app.core.settings.model import ModelSource

FOLDER = Path("/srv/our models/detector")
SOURCE = ModelSource(name="detector", version="1", folder=FOLDER)
FOLDER_NAME = st.text(st.characters(categories=["L", "N"], include_characters=" -_."), min_size=1).filter(
    lambda text: text.strip(" .") == text and text not in (".", "..")
)


@pytest.mark.parametrize(
    ("reason", "redacted"),
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
def test_redacted_reason_keeps_file_names_without_folders(reason: str, redacted: str) -> None:
    assert redact_paths(reason, SOURCE) == redacted


def test_relative_folder_is_redacted() -> None:
    source = ModelSource(name="detector", version="1", folder=Path("fixtures/models/detector"))
    assert redact_paths("fixtures/models/detector/model.onnx is broken", source) == "model.onnx is broken"
    assert redact_paths(f"{Path.cwd()}/fixtures/models/detector/x is broken", source) == "x is broken"


@given(st.lists(FOLDER_NAME, min_size=2, max_size=5))
def test_folders_above_the_model_are_always_redacted(parts: list[str]) -> None:
    folder = Path("/", "hidden-root", *parts)
    redacted = redact_paths(
        f"{folder}/model.onnx and '{folder}' are wrong", ModelSource(name="m", version="1", folder=folder)
    )
    assert "hidden-root" not in redacted
    assert redacted.endswith("are wrong")


class _UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("nothing to say")


def test_exception_without_message_is_shown_as_its_class() -> None:
    assert error_text(ValueError("five")) == "five"
    assert error_text(MemoryError()) == "MemoryError"
    assert error_text(_UnprintableError()) == "_UnprintableError"


def test_long_message_is_cut() -> None:
    assert error_text(ValueError("x" * 10_000)) == "x" * 4096 + " ..."
