"""Write the models of fuzzed servers: the fixture models, also under the names in the golden cases."""

import json
import shutil
from pathlib import Path
from textwrap import dedent

from app.core.settings.server import DEMO_MODELS
from tasks.inference.tensor import Datatype

SPARE = "spare"
"""The only model that fuzzed requests load and unload."""

_ALIASES = {"oriented": "oriented-detector", "teller": "vlm", SPARE: "half_plus_two"}
"""Model names in golden cases, and the fixture models that replace them."""

ECHOES: dict[str, list[tuple[str, str, tuple[int, ...]]]] = {
    **{
        f"echo-{datatype.lower()}": [("x", str(datatype), (-1, -1))]
        for datatype in Datatype
        if datatype not in ("BF16", "BYTES")
    },
    "echo-bytes": [("x", "BYTES", (-1, -1))],
    "echo-fixed": [("x", "INT16", (-1, 2, 3))],
    "echo-encoded": [("x_bytes", "BYTES", (-1,))],
    "echo-pair": [("numbers", "INT64", (-1,)), ("words", "BYTES", (-1,))],
}
"""Python models that return their inputs: name, datatype and shape of each tensor."""

_ECHO = """
    class Model:
        task_type = "TENSOR"
        inputs = outputs = {tensors!r}

        def predict(self, tensors):
            return tensors
"""

_PYTHON_MODELS = {
    "sorter": """
        class Model:
            task_type = "TEXT_CLASSIFICATION"
            labels = ["red", "green", "blue"]

            def predict(self, text):
                counted = [text.count(each) for each in self.labels]
                return [each / max(sum(counted), 1) for each in counted]
    """,
    "embedder": """
        class Model:
            task_type = "TENSOR"
            inputs = {"text": ("BYTES", (-1,))}
            outputs = {"embedding": ("FP32", (-1, 3))}

            def predict(self, tensors):
                return {"embedding": [[text.count(letter) for letter in "abc"] for text in tensors["text"]]}
    """,
    "tagger": """
        import re


        class Model:
            task_type = "TOKEN_CLASSIFICATION"
            labels = ["COLOUR"]

            def predict(self, text):
                spans = [each.span() for each in re.finditer("red|green|blue", text)]
                return [{"entity_group": "COLOUR", "score": 0.5, "start": a, "end": b} for a, b in spans]
    """,
    "continuer": """
        class Model:
            task_type = "TEXT_GENERATION"

            def predict(self, text, parameters):
                for each in text[: parameters.max_new_tokens].split(" "):
                    yield each + " "
    """,
}


def write_models(folder: Path) -> None:
    """Replace the content of `folder` with a repository of all models."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(DEMO_MODELS, folder)
    for name, original in _ALIASES.items():
        shutil.copytree(DEMO_MODELS / original, folder / name)
    (folder / "detector" / "model-settings.json").write_text(json.dumps({"default": True}))
    for name, tensors in ECHOES.items():
        specs = {tensor: (datatype, shape) for tensor, datatype, shape in tensors}
        _write_class(folder / name, dedent(_ECHO).format(tensors=specs))
    for name, code in _PYTHON_MODELS.items():
        _write_class(folder / name, dedent(code))


def _write_class(folder: Path, code: str) -> None:
    folder.mkdir()
    (folder / "model.py").write_text(code.lstrip())
    (folder / "model-settings.json").write_text(json.dumps({"implementation": "model:Model"}))
