"""The module `charioteer`, in our own processes and in projects that have packages of our names."""

import ast
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path

import httpx
import pytest

import charioteer
from app.core.plugins import registry
from app.public_api.in_process import InProcessModel
from tasks.object_detection import Detections
from tests.support.data.chariot import image_input
from tests.support.models.colliding_packages import ENVIRONMENT, PACKAGES, make_project
from tests.support.models.model_folders import write_model
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

MODEL = """
    import tasks, metadata
    from app import word as of_app
    import numpy as np

    from charioteer import Detections, invalid

    class Model:
        def predict(self, image):
            import tasks.words
            if not image.any():
                raise invalid("Too dark")
            label = " ".join([tasks.word(), tasks.words.word(), metadata.word(), of_app()])
            return Detections(labels=[label], scores=np.ones(1), boxes=np.array([[0, 0, 5, 5]]))
"""


def files(owner: str) -> dict[str, str]:
    """Return helper modules with the names of our packages; each returns its owner."""
    words = {"tasks/__init__": "tasks", "tasks/words": "words", "metadata": "metadata", "app": "app"}
    return {f"{path}.py": f"def word():\n    return '{owner} {word}'\n" for path, word in words.items()}


def label(owner: str) -> str:
    """Return the label that such a model predicts."""
    return f"{owner} tasks {owner} words {owner} metadata {owner} app"


def run(project: Path, *arguments: str) -> str:
    """Run Python in the project's folder and return its output."""
    command = [sys.executable, *arguments]
    completed = subprocess.run(command, cwd=project, env=ENVIRONMENT, capture_output=True, text=True, timeout=120)
    assert completed.returncode == 0, completed.stdout + completed.stderr
    return completed.stdout


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a project with two models that have helpers of our names; the second runs in a subprocess."""
    folder = make_project(tmp_path_factory.mktemp("project"))
    write_model(folder / "models" / "first", MODEL, files("first"))
    write_model(folder / "models" / "second", MODEL, files("second"), isolate=True)
    return folder


def test_public_types_are_those_of_our_packages() -> None:
    assert charioteer.Detections is Detections
    assert charioteer.InProcessModel is InProcessModel


def test_every_public_name_is_documented() -> None:
    page = (ROOT / "docs" / "python_models.md").read_text()
    assert [name for name in dir(charioteer) if f"`{name}`" not in page] == []


def test_type_checkers_see_the_public_names_of_all_plugins() -> None:
    tree = ast.parse(Path(charioteer.__file__).read_text())
    (block,) = (node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    assert {name.name: node.module for node in imports for name in node.names} == {
        name: reference.target.partition(":")[0] for name, reference in registry().public.items()
    }


def test_public_names_of_core_need_no_plugin() -> None:
    program = """
import sys
from charioteer import Detections
print([name for name in sys.modules if name.startswith("charioteer.app.plugins")])
"""
    assert run(ROOT, "-c", program) == "[]\n"


def test_private_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'Detection'"):
        _ = charioteer.Detection  # pyright: ignore


@pytest.mark.parametrize("first", ["charioteer", "app"])
def test_public_names_are_imported_beside_packages_of_the_same_names(project: Path, first: str) -> None:
    program = f"""
import {first}
import charioteer
from charioteer import *
import app, metadata, tasks
print(*(package.OWNER for package in (app, metadata, tasks)), sep=", ")
print(*sorted({{value.__module__ for name in dir(charioteer) if hasattr(value := globals()[name], "__module__")}}))
assert {{"Detections", "as_maite", "ray_application"}} <= set(dir(charioteer))
assert set(dir(charioteer)) == set(charioteer.__all__) <= globals().keys()
"""
    owners, modules = run(project, "-c", program).splitlines()
    assert owners == "project app, project metadata, project tasks"
    assert all(module.startswith("charioteer") for module in modules.split())


@pytest.mark.slow
def test_models_in_process_import_their_own_modules(project: Path) -> None:
    program = """
import sys
from pathlib import Path
import app, metadata, tasks
import numpy as np
from charioteer import Detections, InferenceError, InProcessModel
models = [InProcessModel(Path("models", name), allow_code=True) for name in ("first", "second")]
light = np.ones((9, 9, 3), np.uint8)
for model in models:
    found, = model.predict([light])
    assert isinstance(found, Detections)
    print(*found.labels)
    try:
        model.ask(0 * light)
    except InferenceError as error:
        print(error.kind)
assert {sys.modules[name].OWNER for name in ("app", "metadata", "tasks")} == {f"project {name}" for name in NAMES}
"""
    printed = run(project, "-c", f"NAMES = {PACKAGES!r}\n{program}").splitlines()
    assert printed == [label("first"), "invalid_request", label("second"), "invalid_request"]


@pytest.mark.slow
def test_the_command_runs_beside_packages_of_the_same_names(project: Path) -> None:
    options = ("--image", str(ROOT / "fixtures" / "images" / "scene.jpg"), "--allow-code", "--json")
    assert label("first") in run(project, "-m", "charioteer", "predict", "--model", "models/first", *options)
    checked = run(project, "-c", "import charioteer; charioteer.main()", "check", "models", "--allow-code")
    assert checked.count("Tried on one image") == 2


@pytest.fixture(scope="module")
def server(project: Path) -> Generator[ServerProcess]:
    """Start a server in the project's folder."""
    arguments = ("--model-repository", "models", "--allow-code")
    with run_server(*arguments, environment=ENVIRONMENT, cwd=project) as started:
        yield started


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first", "second"])
def test_models_in_a_server_import_their_own_modules(server: ServerProcess, name: str) -> None:
    answer = httpx.post(f"{server.address}/v2/models/m-{name}/infer", json={"inputs": [image_input()]}, timeout=60)
    assert answer.status_code == 200, answer.text
    (detection,) = answer.json()["outputs"][0]["data"][0]
    assert detection["label"] == label(name)
