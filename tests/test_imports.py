"""Cost of starting: heavy libraries are imported only by models that need them. Every protocol is served."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.protocols import LISTENERS, PROTOCOLS

PROTOCOL_MODULES = Path(__file__).parents[1] / "app" / "core" / "protocols"

HEAVY = ("torch", "transformers", "onnxruntime", "litestar", "grpc", "tokenizers", "jinja2")


@pytest.mark.slow
def test_the_command_line_imports_no_framework() -> None:
    program = f"import sys, app.core.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


OPTIONAL = (
    "torch", "transformers", "sqlalchemy", "asyncpg", "pyarrow", "scipy", "httpx", "PIL.Image", "jwt", "cryptography",
    "pydantic",
)  # fmt: skip
"""Libraries of features that are off by default, and of models with text."""


@pytest.mark.slow
def test_server_of_onnx_models_without_text_imports_no_library_that_it_does_not_need() -> None:
    program = f"""
import sys
import numpy as np
from app.core.assembly.models import find_models, load
from app.core.assembly.service import Service
from app.core.plugins import registry
from app.core.settings.server import ModelOptions
from tasks.inference.limits import Limits
from tasks.inference.request import InferenceRequest
from tasks.inference.tensor import Datatype, Tensor
models = [source for source in find_models(ModelOptions()) if source.name != "vlm"]
Service(registry().settings(), lambda: models)
image = Tensor(name="image", datatype=Datatype.UINT8, data=np.zeros((48, 64, 3), np.uint8))
servables = [load(source) for source in models]
print([name for name in {OPTIONAL!r} if name in sys.modules])
for servable in servables:
    if servable.inputs[0].name == "image":
        servable.predict(InferenceRequest(id="1", model_name="m", inputs=(image,)), Limits())
print([name for name in {OPTIONAL!r} if name in sys.modules])
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    # The default filter of classifiers is Pillow's.
    assert completed.stdout.splitlines() == ["[]", "['PIL.Image']"]


def test_every_protocol_folder_is_served_and_has_a_codec_which_a_contract_keeps_from_web_frameworks() -> None:
    folders = [path.parent for path in PROTOCOL_MODULES.glob("*/__init__.py")]
    served = {item.name for item in (*PROTOCOLS, *LISTENERS)}
    assert [folder.name for folder in folders if folder.name.replace("_", "-") not in served] == []
    assert [folder.name for folder in folders if not (folder / "codec.py").is_file()] == []
