"""Test loading and calling models in several threads at once."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from app.core.engine.models.servable import Servable
from app.core.plugins import registry
from app.core.settings.model import ModelSource
from app.plugins.torch.runtime import TRANSFORMERS
from app.plugins.torch.settings import TransformersSettings
from tests.plugins.torch.asking import FolderOf, Served, answers, image_input, scene
from tests.support.data.requests import text_input

pytestmark = pytest.mark.slow

NAMES = ["vit", "t5", "causal_lm", "segformer", "llava", "text_classifier", "clip"]


def test_models_loaded_concurrently_keep_their_dtype(folder_of: FolderOf) -> None:
    def loaded(name: str) -> Servable:
        # transformers sets the dtype for the entire process while it reads weights.
        dtype = TransformersSettings(dtype="bfloat16" if name in ("vit", "clip") else "float32")
        settings = registry().model_settings(transformers=dtype)
        return TRANSFORMERS.load(ModelSource(name=name, version="1", folder=folder_of(name), settings=settings))

    for name in NAMES:
        folder_of(name)
    with ThreadPoolExecutor(len(NAMES)) as pool:
        servables = list(pool.map(loaded, NAMES))
    facts = [fact for servable in servables for fact in servable.description.facts if fact.topic == "dtype"]
    assert [fact.value for fact in facts] == ["bfloat16", *["float32"] * 5, "bfloat16"]


def test_answers_do_not_depend_on_concurrent_requests(served: Served) -> None:
    images = [scene(90 + 10 * number, 64, number) for number in range(4)]
    calls = [
        *((served("vit"), image_input(image)) for image in images),
        *((served("llava"), image_input(image, prompts=["what?"], max_new_tokens=6)) for image in images),
        *((served("clip"), image_input(image, candidate_labels=["a dog", "red"])) for image in images),
        *((served("causal_lm"), text_input("Hello", max_new_tokens=8, temperature=1.5, seed=n)) for n in range(4)),
        *((served("text_classifier"), text_input("hello " * number)) for number in range(1, 5)),
    ]
    expected = [answers(servable, tensor) for servable, tensor in calls]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(2):
            futures = [pool.submit(answers, servable, tensor) for servable, tensor in calls]
            assert [future.result() for future in futures] == expected
