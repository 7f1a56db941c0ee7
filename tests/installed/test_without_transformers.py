"""Run models where transformers cannot be imported, as in the slim image."""

import json
import subprocess

from tests.installed.environments import linked_environment
from tests.support.servers.server_process import ROOT

_RUN = """
import json, sys
from pathlib import Path
sys.modules["transformers"] = None  # importing it raises ImportError
from app.plugins.in_process.model import InProcessModel
from tasks.vision.image import decode_image

fixtures, records = Path("fixtures"), {}
scene = decode_image((fixtures / "images" / "scene.jpg").read_bytes()).pixels
for name in ("classifier", "detector", "oriented-detector", "segmenter"):
    model = InProcessModel(fixtures / "models" / name)
    records[model.description.task_type] = len(model.ask(scene, score_threshold=0))
print(json.dumps(records))
"""
_TASKS = {"IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "ORIENTED_OBJECT_DETECTION", "IMAGE_SEGMENTATION"}


def test_image_tasks_without_text_run_without_transformers() -> None:
    process = subprocess.run(
        [linked_environment().python, "-c", _RUN], cwd=ROOT, capture_output=True, text=True, timeout=120
    )
    assert process.returncode == 0, process.stderr
    records = json.loads(process.stdout)
    assert records.keys() == _TASKS
    assert all(records.values())


def test_only_the_plugins_of_text_and_torch_import_transformers() -> None:
    importing = [
        str(file.relative_to(ROOT))
        for folder in ("app", "metadata", "tasks")
        for file in (ROOT / folder).rglob("*.py")
        if 'import_module("transformers' in file.read_text() or "import transformers" in file.read_text()
    ]
    assert importing
    assert [path for path in importing if not path.startswith(("app/plugins/torch/", "app/plugins/text/"))] == []
