"""Test classes with their own `explain`, in this process and in one of their own, over KServe V1."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from litestar.testing import TestClient

from app.core.assembly.models import describe, load
from app.core.runtimes.python.outputs.explanation import read_explanations
from app.core.settings.model import ModelError
from tasks.inference.error import InferenceError
from tests.support.data.chariot import IMAGE
from tests.support.data.images import encode_base64, encode_image
from tests.support.models.model_folders import source_at, write_model
from tests.support.rejection import rejects_answer
from tests.support.servers.apps import app_with_sources
from tests.support.servers.server_process import ROOT

TEXT_MODEL = """
    import asyncio
    import numpy as np

    class Model:
        {predict}

        {explain}(self, inputs, predictions, parameters):
            assert len(inputs) == len(predictions) == len(parameters)
            return [
                {{"marks": np.array([i for i, c in enumerate(text) if c == "!"]), "said": prediction, "top_k": p.top_k}}
                for text, prediction, p in zip(inputs, predictions, parameters)
            ]
"""
ONE_BY_ONE = """def predict(self, text):
            return 'loud'"""
BATCHED = """async def predict(self, texts):
            await asyncio.sleep(0)
            return ["loud" for _ in texts]"""
EXPECTED: Any = [{"marks": [2, 3], "said": "loud", "top_k": 1}, {"marks": [], "said": "loud", "top_k": 1}]


def explain(folder: Path, code: str, instances: Sequence[object], **settings: Any) -> Any:
    """Return the response of a served model to a request for explanations."""
    source = source_at(write_model(folder / "m", code, **settings))
    with TestClient(app_with_sources([source], load)) as client:
        return client.post("/v1/models/m:explain", json={"instances": instances, "parameters": {"top_k": 1}})


@pytest.mark.parametrize("isolate", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("predict", "definition"), [(ONE_BY_ONE, "def explain"), (BATCHED, "async def explain")])
def test_explanations_of_the_class_are_the_answer(tmp_path: Path, predict: str, definition: str, isolate: bool) -> None:
    code = TEXT_MODEL.format(predict=predict, explain=definition)
    answer = explain(tmp_path, code, ["hi!!", "hi"], task_type="TEXT_GENERATION", isolate=isolate)
    assert answer.json() == {"predictions": [[{"generated_text": "loud"}]] * 2, "explanations": EXPECTED}


def test_example_of_the_documentation_works(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "python_models.md").read_text()
    found = re.search(r"^## Explain$.*?^```python\n(.*?)^```.*?`\"explanations\": (.*?)`", page, re.M | re.S)
    assert found is not None
    image = np.zeros((4, 4, 3), np.uint8)
    image[:, 2:] = 255
    answer = explain(tmp_path, found[1], [encode_base64(encode_image(image))], task_type=None)
    assert answer.json()["explanations"] == json.loads(found[2])


def test_own_explanation_precedes_saliency_and_sees_what_predict_kept(tmp_path: Path) -> None:
    code = """
        class Model:
            def predict(self, image):
                self.seen = image.shape
                return {"dog": 1.0}

            def explain(self, inputs, predictions):
                return [{"shape": list(self.seen), "same": inputs[0].shape == self.seen, "raw": predictions[0]}]
    """
    answer = explain(tmp_path, code, [IMAGE], task_type="IMAGE_CLASSIFICATION")
    (explanation,) = answer.json()["explanations"]
    assert explanation["same"]
    assert explanation["raw"] == {"dog": 1.0}
    assert len(explanation["shape"]) == 3


def test_rows_of_tensors_have_one_explanation_each(tmp_path: Path) -> None:
    code = """
        class Model:
            inputs = {"x": ("FP32", (-1, 2))}
            outputs = {"y": ("FP32", (-1,))}

            def predict(self, tensors):
                return {"y": 3 * tensors["x"][:, 0]}

            def explain(self, inputs, predictions):
                assert (predictions["y"] == 3 * inputs["x"][:, 0]).all()
                return [{"importance_scores": [y, 0]} for y in predictions["y"]]
    """
    answer = explain(tmp_path, code, [[1, 5], [2, 6]], task_type="TENSOR")
    assert answer.json()["explanations"] == [{"importance_scores": [3.0, 0]}, {"importance_scores": [6.0, 0]}]


def test_prompts_and_streamed_answers_are_explained(tmp_path: Path) -> None:
    code = """
        class Model:
            def predict(self, image, prompt):
                yield "a "
                yield prompt

            def explain(self, inputs, predictions, prompts):
                return [[prompts, predictions]]
    """
    instance = {"b64": IMAGE, "prompts": ["cat", "dog"]}
    answer = explain(tmp_path, code, [instance], task_type="IMAGE_TEXT_TO_TEXT")
    assert answer.json()["explanations"] == [[[["cat", "dog"]], [["a cat", "a dog"]]]]


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("def explain(self, image): ...", "explain() takes 'image', but may take only inputs, predictions, parameters"),
        ("def explain(self, predictions): ...", "explain() must take inputs after self"),
        ("def explain(self, inputs): yield 1", "explain() must return a list, but it yields"),
    ],
)
def test_unusable_signature_of_explain_is_rejected(tmp_path: Path, definition: str, message: str) -> None:
    code = f"""
        class Model:
            def predict(self, text): ...
            {definition}
    """
    with pytest.raises(ModelError) as caught:
        load(source_at(write_model(tmp_path, code, task_type="TEXT_GENERATION")))
    assert message in str(caught.value)


def test_description_shows_that_the_model_explains_itself(tmp_path: Path) -> None:
    code = TEXT_MODEL.format(predict=ONE_BY_ONE, explain="def explain")
    facts = describe(source_at(write_model(tmp_path, code, task_type="TEXT_GENERATION"))).facts
    assert ("explains itself", "explain(inputs, predictions, parameters)") in [(f.topic, f.value) for f in facts]


def test_arrays_and_numbers_of_numpy_become_lists_and_numbers() -> None:
    value = {"map": np.ones((1, 2), np.float32), "score": np.float32(0.5), 1: None, "index": np.int64(3)}
    assert read_explanations([value], "explain()", 1, "image") == [
        {"map": [[1.0, 1.0]], "score": 0.5, "1": None, "index": 3}
    ]


ENDLESS: list[object] = []
ENDLESS.append(ENDLESS)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1.0, np.float64("nan")], "Out of range float values"),
        ({"a": [b"x"]}, "got an object of class bytes"),
        ({(1, 2): 3}, "keys must be str"),
        ({"a"}, "got an object of class set"),
        (np.array(["x"]), "got an array of shape (1,)"),
        ("\ud800", "surrogates not allowed"),
        (ENDLESS, "Circular reference"),
    ],
)
def test_value_that_json_cannot_hold_is_named(value: object, message: str) -> None:
    with rejects_answer(message):
        read_explanations([value], "explain()", 1, "image")


def test_wrong_number_is_rejected() -> None:
    with pytest.raises(InferenceError, match="Expected a list of 1 explanations, one for each text, got a list of 0"):
        read_explanations([], "explain()", 1, "text")
