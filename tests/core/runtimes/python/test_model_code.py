"""Test how models import their own modules, which may share names with other models and with our packages."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from app.core.runtimes.python.model_code import ModelCode
from app.core.settings.model import ModelError
from tests.support.models.model_folders import write_and_load
from tests.support.servers.server_process import ROOT

DARK = np.zeros((10, 10, 3), np.uint8)
BOXES = """
class Model:
    def predict(self, image):
        return [dict(label=word(), score=1, xmin=0, ymin=0, xmax=5, ymax=5)]
"""
LABELLED = "class Model:\n    labels = [word()]\n    def predict(self, image): return []\n"


def labels(found: object) -> list[str]:
    return [record["label"] for record in msgspec.to_builtins(found)]


def word_module(word: str) -> str:
    return f"def word():\n    return {word!r}\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import helper\nword = helper.word",
        "from helper import word",
        "from .helper import word",
        "from . import helper\nword = helper.word",
        "import package.helper\nword = package.helper.word",
        "import package.through\nword = package.through.word",
        "def word():\n    from package.helper import word\n    return word()",
        "from helper import *",
    ],
)
def test_models_with_equal_file_names_stay_separate(tmp_path: Path, imports: str) -> None:
    code = imports + BOXES
    files = {
        name: {"helper.py": word_module(name), "package/__init__.py": "", "package/helper.py": word_module(name)}
        for name in "ab"
    }
    for modules in files.values():
        modules["package/through.py"] = "from package.helper import word\n"
    first, second = (write_and_load(tmp_path / name, code, modules) for name, modules in files.items())
    assert labels(first.ask(DARK)) == ["a"]
    assert labels(second.ask(DARK)) == ["b"]
    assert labels(first.ask(DARK)) == ["a"]
    assert not {"model", "helper", "package"} & sys.modules.keys()
    assert str(tmp_path / "a") not in sys.path


@pytest.mark.parametrize("name", ["app", "tasks"])
@pytest.mark.parametrize(
    "imports",
    [
        "import {0}.through\nword = {0}.through.word",
        "from inner.through import word",
        "def word():\n    from {0} import word\n    return word()",
    ],
)
def test_model_may_use_names_of_our_packages(tmp_path: Path, name: str, imports: str) -> None:
    code = imports.format(name) + BOXES
    through = f"from {name}.words import word\n"
    files = {f"{name}/__init__.py": "from .words import word\n", f"{name}/through.py": through}
    files["inner/through.py"] = through
    models = [
        write_and_load(tmp_path / owner, code, {**files, f"{name}/words.py": word_module(owner)}) for owner in "ab"
    ]
    assert [labels(model.ask(DARK)) for model in models] == [["a"], ["b"]]
    assert Path(str(sys.modules["tasks"].__file__)).parents[1] == ROOT


@pytest.mark.parametrize("name", ["tasks", "words"])
def test_folder_without_init_file_is_namespace_package(tmp_path: Path, name: str) -> None:
    code = f"from {name}.helper import word\n{LABELLED}"
    assert write_and_load(tmp_path / "m", code, {f"{name}/helper.py": word_module("a")}).description.labels == ["a"]


def test_implementation_module_may_have_name_of_our_package(tmp_path: Path) -> None:
    files = {"app.py": LABELLED.replace("word()", "__name__")}
    (label,) = write_and_load(tmp_path / "m", "", files, implementation="app:Model").description.labels
    assert label.endswith(".app")


@pytest.mark.parametrize(
    "statement", ["import tasks", "from tasks.task import TaskType", "import app.core.engine.engine"]
)
def test_model_cannot_import_our_packages(tmp_path: Path, statement: str) -> None:
    with pytest.raises(ModelError, match=r"No module named '[a-z.]+'; import the public API .* \(model.py, line 1\)"):
        write_and_load(tmp_path / "m", f"{statement}\n")


def test_installed_package_with_name_of_ours_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed" / "tasks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from tasks.words import word\n")
    (package / "words.py").write_text(word_module("installed"))
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    assert write_and_load(tmp_path / "m", f"from tasks import word\n{LABELLED}").description.labels == ["installed"]


@pytest.mark.parametrize(
    ("statement", "error_text"),
    [
        ("import helper.absent", "No module named 'helper.absent'; 'helper' is not a package"),
        ("from helper import absent", "cannot import name 'absent' from 'helper'"),
        ("import nowhere", "ModuleNotFoundError: No module named 'nowhere' (model.py, line 1)"),
    ],
)
def test_import_error_shows_module_name_from_source(tmp_path: Path, statement: str, error_text: str) -> None:
    with pytest.raises(ModelError, match="importing it failed") as caught:
        write_and_load(tmp_path / "m", f"{statement}\n", {"helper.py": ""})
    assert error_text in str(caught.value)


def test_reloaded_model_reads_its_code_again(tmp_path: Path) -> None:
    code = f"from helper import word\n{LABELLED}"
    # The files have the same size and often the same mtime, so cached bytecode would look current.
    assert write_and_load(tmp_path / "m", code, {"helper.py": word_module("a")}).description.labels == ["a"]
    assert write_and_load(tmp_path / "m", code, {"helper.py": word_module("b")}).description.labels == ["b"]
    assert sorted(path.name for path in (tmp_path / "m").iterdir()) == ["helper.py", "model-settings.json", "model.py"]


def test_data_folder_does_not_hide_installed_package(tmp_path: Path) -> None:
    code = f"import numpy\n{LABELLED.replace('word()', 'numpy.__name__')}"
    assert write_and_load(tmp_path / "m", code, {"numpy/weights.txt": "1"}).description.labels == ["numpy"]


def test_dataclasses_and_type_hints_resolve_in_model_module(tmp_path: Path) -> None:
    code = """
        from __future__ import annotations
        import dataclasses, typing
        @dataclasses.dataclass
        class Box:
            left: int
        class Model:
            labels = [typing.get_type_hints(Box)["left"].__name__]
            def predict(self, image): return []
    """
    assert write_and_load(tmp_path / "m", code).description.labels == ["int"]


def test_implementation_may_be_in_installed_module(tmp_path: Path) -> None:
    code = ModelCode(tmp_path)
    assert code.find("collections:OrderedDict").__name__ == "OrderedDict"  # pyright: ignore
    code.unload()


@pytest.mark.parametrize(
    ("implementation", "error_text"),
    [
        ("model", "Expected module:Class"),
        ("../model:Model", "Expected module:Class"),
        ("absent:Model", "There is no module 'absent'"),
        ("package.absent:Model", "There is no module 'package.absent'"),
        ("model:Absent", "Module 'model' has no 'Absent'"),
    ],
)
def test_missing_implementation_is_named_in_error(tmp_path: Path, implementation: str, error_text: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "model.py").touch()
    code = ModelCode(tmp_path)
    with pytest.raises(ModelError, match="implementation: ") as caught:
        code.find(implementation)
    assert error_text in str(caught.value)
    code.unload()


def test_forget_removes_modules_and_import_hook(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import helper\nclass Model: ...")
    (tmp_path / "helper.py").touch()
    code = ModelCode(tmp_path)
    code.find("model:Model")
    assert f"{code.package}.helper" in sys.modules
    code.unload()
    assert [name for name in sys.modules if name.startswith(code.package)] == []
    assert code not in sys.meta_path
