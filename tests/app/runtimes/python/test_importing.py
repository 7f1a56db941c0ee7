"""Models whose modules have the same names."""

import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

from app.runtimes.python.importing import ModelCode
from app.settings.model import ModelError
from tests.support.model_folders import loaded
from tests.support.server_process import ROOT

DARK = np.zeros((10, 10, 3), np.uint8)


def labels(found: object) -> list[str]:
    return [each["label"] for each in msgspec.to_builtins(found)]


def says(what: str) -> str:
    return f"def word():\n    return {what!r}\n"


@pytest.mark.parametrize(
    "imports",
    [
        "import helper\nword = helper.word",
        "from helper import word",
        "from .helper import word",
        "from . import helper\nword = helper.word",
        "import helper as other\nword = other.word",
        "import package.helper\nword = package.helper.word",
        "from package.helper import word",
        "from package import helper\nword = helper.word",
        "import package.through\nword = package.through.word",
        "def word():\n    import helper\n    return helper.word()",
        "def word():\n    from package.helper import word\n    return word()",
        "from helper import *",
    ],
)
def test_two_models_with_files_of_the_same_names_do_not_meet(tmp_path: Path, imports: str) -> None:
    code = f"""{imports}
class Model:
    task_type = "OBJECT_DETECTION"
    def predict(self, image):
        return [dict(label=word(), score=1, xmin=0, ymin=0, xmax=5, ymax=5)]
"""
    files = {
        name: {"helper.py": says(name), "package/__init__.py": "", "package/helper.py": says(name)} for name in "ab"
    }
    for each in files.values():
        each["package/through.py"] = "from package.helper import word\n"
    first, second = (loaded(tmp_path / name, code, each) for name, each in files.items())
    assert labels(first.ask(DARK)) == ["a"]
    assert labels(second.ask(DARK)) == ["b"]
    assert labels(first.ask(DARK)) == ["a"]
    assert not {"model", "helper", "package"} & sys.modules.keys()
    assert str(tmp_path / "a") not in sys.path


@pytest.mark.parametrize("name", ["app", "metadata", "tasks"])
@pytest.mark.parametrize(
    "imports",
    [
        "import {0}\nword = {0}.word",
        "from {0} import word",
        "import {0}.through\nword = {0}.through.word",
        "from inner.through import word",
        "def word():\n    from {0} import word\n    return word()",
    ],
)
def test_the_names_of_our_packages_are_free_in_a_models_folder(tmp_path: Path, name: str, imports: str) -> None:
    code = f"""{imports.format(name)}
class Model:
    def predict(self, image):
        return [dict(label=word(), score=1, xmin=0, ymin=0, xmax=5, ymax=5)]
"""
    through = f"from {name}.words import word\n"
    models = [
        loaded(
            tmp_path / owner,
            code,
            {
                f"{name}/__init__.py": "from .words import word\n",
                f"{name}/words.py": says(owner),
                f"{name}/through.py": through,
                "inner/through.py": through,
            },
        )
        for owner in "ab"
    ]
    assert [labels(each.ask(DARK)) for each in models] == [["a"], ["b"]]
    assert Path(str(sys.modules["tasks"].__file__)).parents[1] == ROOT


@pytest.mark.parametrize("name", ["app", "metadata", "tasks", "words"])
def test_a_folder_without_init_file_holds_modules(tmp_path: Path, name: str) -> None:
    code = (
        f"from {name}.helper import word\nclass Model:\n    labels = [word()]\n    def predict(self, image): return []"
    )
    assert loaded(tmp_path / "m", code, {f"{name}/helper.py": says("a")}).description.labels == ["a"]


@pytest.mark.parametrize("name", ["app", "metadata", "tasks"])
def test_a_module_of_our_name_can_be_the_implementation(tmp_path: Path, name: str) -> None:
    code = "class Model:\n    labels = [__name__]\n    def predict(self, image): return []"
    (label,) = loaded(tmp_path / "m", "", {f"{name}.py": code}, implementation=f"{name}:Model").description.labels
    assert label.endswith(f".{name}")


@pytest.mark.parametrize("statement", ["import tasks", "from tasks.task import TaskType", "import app.engine.engine"])
def test_our_packages_are_not_found_by_a_model(tmp_path: Path, statement: str) -> None:
    with pytest.raises(ModelError, match=r"No module named '[a-z.]+'; import the public API .* \(model.py, line 1\)"):
        loaded(tmp_path / "m", f"{statement}\n")


def test_a_package_of_our_name_that_is_installed_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "installed" / "tasks"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from tasks.words import word\n")
    (package / "words.py").write_text(says("installed"))
    monkeypatch.setattr(sys, "path", [str(package.parent), *sys.path])
    code = "from tasks import word\nclass Model:\n    labels = [word()]\n    def predict(self, image): return []"
    assert loaded(tmp_path / "m", code).description.labels == ["installed"]


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("import helper.absent", "No module named 'helper.absent'; 'helper' is not a package"),
        ("from helper import absent", "cannot import name 'absent' from 'helper'"),
    ],
)
def test_errors_name_modules_as_the_author_does(tmp_path: Path, statement: str, said: str) -> None:
    with pytest.raises(ModelError, match="importing it failed") as caught:
        loaded(tmp_path / "m", f"{statement}\n", {"helper.py": ""})
    assert said in str(caught.value)


def test_the_folder_is_left_as_it_was(tmp_path: Path) -> None:
    files = {"helper.py": says("x")}
    loaded(tmp_path / "m", "import helper\nclass Model:\n    def predict(self, image): return []", files)
    assert sorted(each.name for each in (tmp_path / "m").iterdir()) == ["helper.py", "model-settings.json", "model.py"]


def test_a_model_that_is_loaded_again_has_its_code_read_again(tmp_path: Path) -> None:
    code = (
        "from helper import word\nclass Model:\n    def predict(self, image): return [(word())]\n    labels = [word()]"
    )
    # Of the same size and, at best, of the same second: what bytecode goes by.
    assert loaded(tmp_path / "m", code, {"helper.py": says("a")}).description.labels == ["a"]
    assert loaded(tmp_path / "m", code, {"helper.py": says("b")}).description.labels == ["b"]


def test_a_folder_of_data_hides_no_installed_package(tmp_path: Path) -> None:
    code = "import numpy\nclass Model:\n    labels = [numpy.__name__]\n    def predict(self, image): return []"
    assert loaded(tmp_path / "m", code, {"numpy/weights.txt": "1"}).description.labels == ["numpy"]


def test_dataclasses_and_hints_find_their_module(tmp_path: Path) -> None:
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
    assert loaded(tmp_path / "m", code).description.labels == ["int"]


def test_what_is_installed_can_be_named_too(tmp_path: Path) -> None:
    code = ModelCode(tmp_path)
    assert code.find("collections:OrderedDict").__name__ == "OrderedDict"  # pyright: ignore
    code.forget()


@pytest.mark.parametrize(
    ("implementation", "said"),
    [
        ("model", "Expected module:Class"),
        ("model:", "Expected module:Class"),
        ("../model:Model", "Expected module:Class"),
        ("model:Model()", "Expected module:Class"),
        ("absent:Model", "There is no module 'absent'"),
        ("package.absent:Model", "There is no module 'package.absent'"),
        ("model:Absent", "Module 'model' has no 'Absent'"),
    ],
)
def test_what_is_not_there_is_named(tmp_path: Path, implementation: str, said: str) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "__init__.py").touch()
    (tmp_path / "model.py").touch()
    code = ModelCode(tmp_path)
    with pytest.raises(ModelError, match="implementation: ") as caught:
        code.find(implementation)
    assert said in str(caught.value)
    code.forget()


def test_a_library_that_is_missing_is_told_as_python_tells_it(tmp_path: Path) -> None:
    with pytest.raises(
        ModelError, match=r"importing it failed: ModuleNotFoundError: .*'nowhere'.* \(model.py, line 2\)"
    ):
        loaded(tmp_path / "m", "\nimport nowhere\n")


def test_what_is_forgotten_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("import helper\nclass Model: ...")
    (tmp_path / "helper.py").touch()
    code = ModelCode(tmp_path)
    code.find("model:Model")
    assert f"{code.package}.helper" in sys.modules
    code.forget()
    assert [name for name in sys.modules if name.startswith(code.package)] == []
    assert code not in sys.meta_path
