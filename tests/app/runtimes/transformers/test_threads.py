"""Models are loaded, and answer, in several threads at once."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from app.engine.servable import Servable
from app.runtimes.transformers import TransformersRuntime
from app.settings.model import ModelSettings, ModelSource, TransformersSettings
from tests.app.runtimes.transformers.asking import answers, image_input, scene, text_input

pytestmark = pytest.mark.slow

NAMES = ["vit", "t5", "causal", "segformer", "llava", "text_classifier", "clip"]


def test_models_loaded_at_once_are_whole(folder_of: Callable[[str], Path]) -> None:
    def loaded(name: str) -> Servable:
        # A dtype other than the default, which transformers sets for the whole process while it reads weights.
        dtype = TransformersSettings(dtype="bfloat16" if name in ("vit", "clip") else "float32")
        source = ModelSource(name=name, version="1", folder=folder_of(name), settings=ModelSettings(transformers=dtype))
        return TransformersRuntime().load(source)

    for name in NAMES:
        folder_of(name)
    with ThreadPoolExecutor(len(NAMES)) as pool:
        made = list(pool.map(loaded, NAMES))
    told = [next(fact.value for fact in each.description.facts if fact.topic == "dtype") for each in made]
    assert told == ["bfloat16", "float32", "float32", "float32", "float32", "float32", "bfloat16"]


def test_answers_do_not_depend_on_who_else_asks(served: Callable[..., Servable]) -> None:
    pictures = [scene(90 + 10 * place, 64, place) for place in range(4)]
    asked = [
        *((served("vit"), image_input(each)) for each in pictures),
        *((served("llava"), image_input(each, prompts=["what?"], max_new_tokens=6)) for each in pictures),
        *((served("clip"), image_input(each, candidate_labels=["a dog", "red"])) for each in pictures),
        *((served("causal"), text_input("Hello", max_new_tokens=8, temperature=1.5, seed=place)) for place in range(4)),
        *((served("text_classifier"), text_input("hello " * place)) for place in range(1, 5)),
    ]
    expected = [answers(servable, given) for servable, given in asked]
    with ThreadPoolExecutor(6) as pool:
        for _ in range(2):
            waiting = [pool.submit(answers, servable, given) for servable, given in asked]
            assert [each.result() for each in waiting] == expected
