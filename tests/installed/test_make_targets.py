"""Check that each Makefile target installs the packages that it imports."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.installed.environments import requirements
from tests.installed.test_imports import MISSING_PACKAGE
from tests.support.servers.server_process import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
_RULE = re.compile(
    r"^(?P<target>[\w-]+|\$\(VENV\)/\.[\w-]+):(?P<needs>[^#\n]*)(?:##.*)?\n(?P<recipe>(?:\t.*\n)*)", re.MULTILINE
)
_MODULE = re.compile(r"\$\(BIN\)/python (?:-m (?P<module>(?:tests|fixtures|app)[\w.]*)|(?P<file>[\w/]+\.py))")
_PRODUCT = frozenset({"app", "charioteer", "metadata", "tasks"})
_TOOLS = frozenset({"deploy", "docs", "fixtures", "tests"})
_RULES = {found["target"]: found for found in _RULE.finditer(MAKEFILE)}
TARGETS = {
    target: [match["module"] or match["file"].removesuffix(".py").replace("/", ".") for match in modules]
    for target, rule in _RULES.items()
    if (modules := list(_MODULE.finditer(rule["recipe"])))
}
"""The modules that each target runs."""


def extras_of(target: str) -> list[str]:
    """Return the extras that a target's environment is installed with."""
    extras = list[str]()
    for stamp in re.findall(r"\$\(VENV\)/\.[\w-]+", _RULES[target]["needs"]):
        match = re.search(r"--editable '?\.(?:\[([a-z,-]+)\])?", _RULES[stamp]["recipe"])
        assert match, stamp
        extras += match[1].split(",") if match[1] else ()
    return extras


@cache
def imports_of(module: str) -> frozenset[str]:
    """Return the modules that a module of this repository imports; of a package, those of its `__init__`."""
    path = ROOT.joinpath(*module.split("."))
    file = next((file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file()), None)
    return frozenset(_imports(ast.parse(file.read_text()))) if file else frozenset()


def _imports(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]):
                yield name
            case _:
                pass


def packages(modules: Iterable[str]) -> set[str]:
    """Return the packages that modules import; of the product, only those that need an extra."""
    found: set[str] = set()
    seen: set[str] = set()
    pending = [name for module in modules for name in (module, f"{module}.__main__")]
    while pending:
        module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        root, _, rest = module.partition(".")
        if root in _TOOLS:
            pending += [*imports_of(module), *([module.rpartition(".")[0]] if rest else [])]
        elif root in _PRODUCT:
            found |= {MISSING_PACKAGE[module]} if module in MISSING_PACKAGE else set()
        elif root not in sys.stdlib_module_names:
            found.add(root)
    return found


@cache
def _distributions() -> Mapping[str, list[str]]:
    # The environment of the tests may lack a package whose name differs from its module.
    return {"skimage": ["scikit-image"], **packages_distributions()}


def test_makefile_targets_are_parsed() -> None:
    assert TARGETS["bench"] == ["tests.benchmarks.serving"]
    assert {"soak", "lock", "fixtures"} <= TARGETS.keys()
    assert "skimage" in packages(["fixtures.backgrounds"])


@pytest.mark.parametrize("target", TARGETS)
def test_target_environment_has_imported_packages(target: str) -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in requirements(*extras_of(target))}
    imported = {module: {*_distributions().get(module, [module])} for module in packages(TARGETS[target])}
    missing = {module for module, names in imported.items() if not {*map(canonicalize_name, names)} & declared}
    assert missing == set()
