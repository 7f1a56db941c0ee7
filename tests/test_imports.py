"""Cost of starting: heavy libraries are imported only by models that need them."""

import subprocess
import sys

HEAVY = ("torch", "transformers", "onnxruntime", "litestar", "grpc", "tokenizers", "jinja2")


def test_the_command_line_imports_no_framework() -> None:
    program = f"import sys, app.cli; print([name for name in {HEAVY!r} if name in sys.modules])"
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"


def test_serving_onnx_models_imports_neither_torch_nor_transformers() -> None:
    program = """
import sys
from app.assembly.models import find_models, load
from app.assembly.service import Service
from app.settings.server import ModelOptions
for source in find_models(ModelOptions()):
    load(source)
print([name for name in ("torch", "transformers") if name in sys.modules])
"""
    completed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert completed.stdout.strip() == "[]"
