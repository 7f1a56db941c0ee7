"""Test a model that its first request loads."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import numpy as np
import pytest

from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelSource
from app.plugins.transformers.text.generation import PromptedImageModel
from app.plugins.transformers.text.image_text_to_text.assembly import assemble, load
from app.plugins.transformers.text.image_text_to_text.deferred import DeferredModel
from tasks.image_text_to_text import GenerationParameters, PromptedImage
from tasks.inference.error import ErrorKind, InferenceError
from tasks.vision.image import Image
from tests.plugins.transformers.text.image_text_to_text import tiny

BLACK = Image(np.zeros((8, 8, 3), np.uint8))
ITEM = PromptedImage((BLACK,), ("What is this?",), GenerationParameters(max_new_tokens=3))


def deferred(folder: Path) -> Servable:
    return load(tiny.source(folder, load_at_first_use=True))


def test_deferred_model_answers_and_streams_as_a_loaded_one(folder: Path) -> None:
    expected = load(tiny.source(folder))
    servable = deferred(folder)
    model, loaded = cast("PromptedImageModel", servable.model), cast("PromptedImageModel", expected.model)
    assert model([ITEM])[0].answers == loaded([ITEM])[0].answers
    assert servable.description.layout == expected.description.layout
    assert list(model.stream([ITEM])) == list(loaded.stream([ITEM]))


def test_parallel_first_requests_load_the_model_once(folder: Path) -> None:
    opened: list[ModelSource] = []

    def open_model(source: ModelSource) -> PromptedImageModel:
        opened.append(source)
        return assemble(source)[0]

    model = DeferredModel(tiny.source(folder), open_model)
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(model, [[ITEM]] * 4))
    assert len(opened) == 1


def test_broken_model_is_not_ready_after_its_first_request(folder: Path) -> None:
    (folder / "vision_encoder.onnx").write_bytes(b"not a graph")
    servable = deferred(folder)
    assert servable.health is not None
    assert not servable.health.unavailable_reason
    with pytest.raises(InferenceError, match=r"is not ready: vision_encoder\.onnx") as caught:
        servable.model([ITEM])
    assert caught.value.kind is ErrorKind.MODEL_NOT_READY
    assert "vision_encoder.onnx" in servable.health.unavailable_reason


def test_server_starts_without_the_library_of_a_deferred_model() -> None:
    code = (
        "import sys; from pathlib import Path; from app.core.assembly.discovery import model_at; "
        "from app.core.assembly.models import load; servable = load(*model_at(Path('fixtures/models/vlm'))); "
        "print(servable.task.task_type, 'transformers' in sys.modules)"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert printed.split() == ["IMAGE_TEXT_TO_TEXT", "False"]
