"""Cost of starting: heavy libraries are imported only by models that need them. Protocols import no other protocol."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.protocols import LISTENERS, PROTOCOLS

PROTOCOL_MODULES = Path(__file__).parents[1] / "app" / "core" / "protocols"
PROTOCOL_FOLDERS = sorted(path.parent.name for path in PROTOCOL_MODULES.glob("*/__init__.py"))

HEAVY = ("torch", "transformers", "onnxruntime", "litestar", "grpc", "tokenizers", "jinja2")


def test_the_command_line_imports_no_framework() -> None:
    program = f"import sys, app.core.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


OPTIONAL = (
    "torch",
    "transformers",
    "sqlalchemy",
    "asyncpg",
    "pyarrow",
    "scipy",
    "httpx",
    "PIL.Image",
    "jwt",
    "cryptography",
    "pydantic",
)
"""Libraries of features that are off by default, and of models with text."""


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


def test_every_protocol_folder_is_served() -> None:
    assert {name.replace("_", "-") for name in PROTOCOL_FOLDERS} <= {item.name for item in (*PROTOCOLS, *LISTENERS)}


@pytest.mark.parametrize("folder", ["", *PROTOCOL_FOLDERS])
def test_protocols_and_their_shared_modules_import_no_other_protocol(folder: str) -> None:
    for file in (PROTOCOL_MODULES / folder).glob("**/*.py" if folder else "*.py"):
        # The package itself lists all protocols.
        if file.parent == PROTOCOL_MODULES and file.name == "__init__.py":
            continue
        imported = {name.split(".")[2] for name in _imports(file) if name.startswith("app.core.protocols.")}
        assert imported & set(PROTOCOL_FOLDERS) <= {folder}, file


@pytest.mark.parametrize("folder", PROTOCOL_FOLDERS)
def test_every_protocol_has_a_codec_which_a_contract_keeps_from_web_frameworks(folder: str) -> None:
    assert (PROTOCOL_MODULES / folder / "codec.py").is_file()


def _imports(file: Path) -> list[str]:
    """Return every name that a module imports, with its package."""
    names: list[str] = []
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [f"{node.module}.{alias.name}" for alias in node.names]
    return names
