"""Test loading: permission to run code, hooks, and the errors of models that cannot be loaded."""

import gc
import threading
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from app.core.assembly.models import describe, load
from app.core.engine.models.servable import Servable
from app.core.settings.model import ModelError, ModelSource
from metadata.model import Origin
from tasks.task import TaskType
from tests.support.data.requests import pixel_input, predict
from tests.support.models.model_folders import DETECTION, source_at, write_and_load, write_model

PREDICT = "    def predict(self, image): return []\n"
WORKS = f"class Model:\n{PREDICT}"
IMAGE = np.zeros((4, 5, 3), np.uint8)


def answer(servable: Servable) -> Any:
    (prediction,) = predict(servable, pixel_input(IMAGE))
    return msgspec.to_builtins(prediction.records())


def facts(folder: Path) -> dict[str, str]:
    """Return the facts in the description of a model."""
    return {fact.topic: fact.value for fact in describe(source_at(folder)).facts}


def with_arguments(model_source: ModelSource, **arguments: object) -> ModelSource:
    """Return the source with constructor arguments, which need not be JSON here."""
    settings = msgspec.structs.replace(model_source.settings, arguments=arguments)
    return msgspec.structs.replace(model_source, settings=settings)


@pytest.mark.parametrize("use", [load, describe])
def test_code_is_not_run_unless_the_operator_allows_it(tmp_path: Path, use: Any) -> None:
    write_model(tmp_path / "m", f"import pathlib\npathlib.Path({str(tmp_path / 'ran')!r}).touch()\n{WORKS}")
    with pytest.raises(ModelError, match=r"m contains Python code, .* --allow-code, or CHARIOTEER_ALLOW_CODE"):
        use(source_at(tmp_path / "m", allow_code=False))
    assert not (tmp_path / "ran").exists()
    use(source_at(tmp_path / "m"))
    assert (tmp_path / "ran").exists()


def test_named_class_is_preferred_to_onnx_file_in_same_folder(tmp_path: Path) -> None:
    found = source_at(write_model(tmp_path / "m", WORKS, {"model.onnx": ""}))
    assert load(found).description.platform == "python"
    with pytest.raises(ModelError, match=r'must name its class, as in "implementation": "model:Detector"'):
        load(source_at(write_model(tmp_path / "m", WORKS, implementation=None, runtime="python")))


def test_hooks_run_once_for_each_instance_in_its_thread(tmp_path: Path) -> None:
    code = """
        import threading
        class Model:
            def __init__(self, calls):
                self.calls = calls
                self.record("made")
            def load(self): self.record("loaded")
            def predict(self, image):
                self.record("asked")
                return []
            def close(self): self.record("closed")
            def record(self, what): self.calls.append(f"{threading.current_thread().name} {what}")
    """
    events: list[str] = []
    servable = load(with_arguments(source_at(write_model(tmp_path / "m", code, instances=2)), calls=events))
    assert events == ["model m 0 made", "model m 0 loaded", "model m 1 made", "model m 1 loaded"]
    answer(servable)
    assert events[4].endswith("asked")


def test_model_is_closed_when_it_is_dropped_and_its_last_request_has_ended(tmp_path: Path) -> None:
    code = """
        class Model:
            def __init__(self, reached, gate, calls, closed):
                self.reached, self.gate, self.calls, self.closed = reached, gate, calls, closed
            def predict(self, image):
                self.reached.set()
                self.gate.wait()
                self.calls.append("answered")
                return []
            def close(self):
                self.calls.append("closed")
                self.closed.set()
    """
    reached, gate, closed = (threading.Event() for _ in range(3))
    events: list[str] = []
    source = source_at(write_model(tmp_path / "m", code))
    servables = [load(with_arguments(source, reached=reached, gate=gate, calls=events, closed=closed))]
    thread = threading.Thread(target=answer, args=(servables.pop(),))
    thread.start()
    assert reached.wait(60)
    gc.collect()
    assert events == []
    gate.set()
    thread.join(30)
    del thread
    gc.collect()
    assert closed.wait(60)
    assert events == ["answered", "closed"]


DETECTOR_ERRORS = [
    ("\nraise ValueError('no')", "importing it failed: ValueError: no (model.py, line 2)"),
    ("class Model\n", "importing it failed: SyntaxError: "),
    ("import sys\nsys.exit(3)", "importing it failed: SystemExit: 3 (model.py, line 2)"),
    ("import helper", "importing it failed: KeyError: 'x' (helper.py, line 1)"),
    (f"class Model:\n    def __init__(self): 1 / 0\n{PREDICT}", "constructing it failed: ZeroDivisionError"),
    (f"class Model:\n    def load(self): raise SystemExit('bye')\n{PREDICT}", "load() failed: SystemExit: bye"),
    (f"class Model:\n    async def load(self): 1 / 0\n{PREDICT}", "load() failed: ZeroDivisionError: division by"),
    ("", "implementation: Module 'model' has no 'Model'"),
    ("Model = 3", "model:Model is neither a class nor a function that returns a model"),
    ("def Model(): return None", "NoneType has no predict()"),
    (f"class Model:\n    labels = 'cat'\n{PREDICT}", "labels: Expected a list of class names"),
    (f"class Model:\n    labels = {{'0': 'cat'}}\n{PREDICT}", "labels: Expected a list of class names"),
    (f"class Model:\n    labels = {{2**40: 'cat'}}\n{PREDICT}", "labels: Expected numbers of classes below 1000000"),
]


@pytest.mark.parametrize(
    ("code", "error_text", "task_type"),
    [
        *((*row, DETECTION) for row in DETECTOR_ERRORS),
        (f"{WORKS}    task_type = 'CATS'", "got 'CATS'", None),
        (WORKS, 'must declare its "task_type", one of IMAGE_CLASSIFICATION', None),
        (WORKS, "must declare inputs, as in ", "TENSOR"),
        (f"{WORKS}    inputs = {{'x': ('FP99', (1,))}}; outputs = {{}}", "inputs: Expected a datatype and a", "TENSOR"),
        (f"{WORKS}    inputs = {{'x': 'FP32'}}; outputs = {{}}", "inputs: Expected a datatype and a shape", "TENSOR"),
        (f"{WORKS}    inputs = {{'x': ('FP32', (1,))}}", "must declare outputs, as in ", "TENSOR"),
    ],
)
def test_load_error_names_step_and_file(tmp_path: Path, code: str, error_text: str, task_type: str | None) -> None:
    with pytest.raises(ModelError) as caught:
        write_and_load(tmp_path / "m", code, {"helper.py": "{}['x']"}, task_type=task_type)
    assert error_text in str(caught.value)
    assert str(tmp_path / "m" / "model-settings.json") in str(caught.value)


@pytest.mark.parametrize(
    "code",
    [
        "import threading\nthreading.Event().wait()",
        f"import asyncio\nclass Model:\n    async def load(self): await asyncio.Event().wait()\n{PREDICT}",
    ],
)
def test_loading_times_out(tmp_path: Path, code: str) -> None:
    with pytest.raises(ModelError, match=r"did not end within 0\.1 s"):
        write_and_load(tmp_path / "m", code, load_timeout_seconds=0.1)


def test_a_task_is_declared_by_settings_or_class(tmp_path: Path) -> None:
    write_model(tmp_path / "m", WORKS, task_type="IMAGE_CLASSIFICATION")
    write_model(tmp_path / "n", f"class Model:\n    task_type = 'IMAGE_CLASSIFICATION'\n{PREDICT}", task_type=None)
    by_settings, by_class = (load(source_at(tmp_path / name)).description for name in "mn")
    assert by_settings.task_type is by_class.task_type is TaskType.IMAGE_CLASSIFICATION
    assert [description.facts[0].origin for description in (by_settings, by_class)] == [Origin.DECLARED, Origin.CLASS]


@pytest.mark.parametrize(
    ("code", "declared"),
    [
        (WORKS, ["a", "b"]),
        (f"class Model:\n    labels = ['a', 'b']\n{PREDICT}", None),
        (f"class Model:\n    labels = {{1: 'b', 0: 'a'}}\n{PREDICT}", None),
        (f"class Model:\n    def load(self): self.labels = ('a', 'b')\n{PREDICT}", None),
        (f"class Model:\n    @property\n    def labels(self): return ['a', 'b']\n{PREDICT}", None),
        (f"from functools import *\nclass Model:\n    labels = cached_property(lambda _: ['a', 'b'])\n{PREDICT}", None),
        (f"class Model:\n    labels = ['x', 'y']\n{PREDICT}", ["a", "b"]),
        (f"class Model:\n    @property\n    def labels(self): return ['x', 'y']\n{PREDICT}", ["a", "b"]),
    ],
)
def test_labels_come_from_settings_or_instance(tmp_path: Path, code: str, declared: list[str] | None) -> None:
    assert list(write_and_load(tmp_path / "m", code, labels=declared).description.labels) == ["a", "b"]
    described = describe(source_at(tmp_path / "m"))
    assert described.task_type is TaskType.OBJECT_DETECTION
    assert declared is None or list(described.labels) == declared


def test_implementation_may_be_factory_function(tmp_path: Path) -> None:
    code = f"class Real:\n{PREDICT}\ndef Model(size): assert size == 3; return Real()"
    assert write_and_load(tmp_path / "m", code, arguments={"size": 3}).ask(IMAGE) == []
    assert facts(tmp_path / "m")["is called as"] == "the model that the function makes"


def test_describe_finds_the_task_of_the_object_that_a_function_makes(tmp_path: Path) -> None:
    real = f"class Real:\n    task_type = 'OBJECT_DETECTION'\n    def load(self): raise ValueError\n{PREDICT}"
    code = f"{real}\ndef Model(size): return Real()"
    write_model(tmp_path / "m", code, task_type=None, arguments={"size": 3})
    assert describe(source_at(tmp_path / "m")).task_type is TaskType.OBJECT_DETECTION
    assert facts(tmp_path / "m")["is called as"] == "predict(image)"


def test_describe_creates_no_instance(tmp_path: Path) -> None:
    write_model(tmp_path / "m", f"class Model:\n    def __init__(self): raise ValueError\n{PREDICT}", timeout_seconds=5)
    found = facts(tmp_path / "m")
    assert (found["is called as"], found["class"], found["a call may take"]) == ("predict(image)", "model:Model", "5 s")


@pytest.mark.parametrize(
    "predict",
    [
        "def predict(this, image): return []",
        "@staticmethod\n    def predict(image): return []",
        "@classmethod\n    def predict(cls, image): return []",
        "@functools.cache\n    def predict(model, image): return []",
        "predict = functools.partialmethod(lambda model, image, size: [], size=3)",
    ],
)
def test_describe_ignores_the_first_parameter_of_a_method(tmp_path: Path, predict: str) -> None:
    write_model(tmp_path / "m", f"import functools\nclass Model:\n    {predict}\n")
    load(source_at(tmp_path / "m"))
    assert facts(tmp_path / "m")["is called as"] == "predict(image)"


def test_describe_accepts_property_with_function(tmp_path: Path) -> None:
    code = "class Model:\n    @property\n    def predict(self): return lambda image: []\n"
    assert write_and_load(tmp_path / "m", code).ask(IMAGE) == []
    assert describe(source_at(tmp_path / "m")).task_type is TaskType.OBJECT_DETECTION


@pytest.mark.parametrize("name", ["Model", "make"])
def test_class_or_function_declares_tensor_inputs_and_outputs(tmp_path: Path, name: str) -> None:
    code = """
        class Model:
            inputs = {"x": ("FP32", (-1, 2))}
            outputs = {"y": ("FP32", (-1,))}
            def predict(self, tensors):
                return {"y": tensors["x"].sum(axis=1)}
        def make(): return Model()
    """
    model = write_and_load(tmp_path / "m", code, task_type="TENSOR", implementation=f"model:{name}")
    assert model.run({"x": np.array([[1, 2], [3, 4]], np.float32)})["y"].tolist() == [3, 7]
    assert [spec.name for spec in describe(source_at(tmp_path / "m")).inputs] == ["x"]
