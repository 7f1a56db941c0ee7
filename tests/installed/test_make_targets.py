"""Check that each Makefile target installs the packages that it imports."""

import ast
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.installed.environments import requirements
from tests.support.servers.server_process import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()
_RULE = re.compile(
    r"^(?P<target>[\w-]+|\$\(VENV\)/\.[\w-]+):(?P<needs>[^#\n]*)(?:##.*)?\n(?P<recipe>(?:\t.*\n)*)", re.MULTILINE
)
_MODULE = re.compile(r"\$\(BIN\)/python (?:-m (?P<module>(?:tests|fixtures|app)[\w.]*)|(?P<file>[\w/]+\.py))")
_DISTRIBUTIONS: Mapping[str, str] = {"skimage": "scikit-image"}
"""Packages whose name differs from their module, and that the test environment may not have."""
_IMPORT_STATEMENTS = (ast.Import, ast.ImportFrom)
_OWN_PACKAGES = frozenset({"app", "charioteer_pytest", "deploy", "docs", "fixtures", "metadata", "tasks", "tests"})
_RULES = {found["target"]: found for found in _RULE.finditer(MAKEFILE)}
TARGETS = {
    target: [match["module"] or match["file"].removesuffix(".py").replace("/", ".") for match in modules]
    for target, rule in _RULES.items()
    if (modules := list(_MODULE.finditer(rule["recipe"])))
}
"""The modules that each target runs."""


def extras_of(target: str) -> list[str]:
    """Return the extras that a target's environment is installed with."""
    (stamp,) = re.findall(r"\$\(VENV\)/\.[\w-]+", _RULES[target]["needs"])
    match = re.search(r"--editable '?\.(?:\[([a-z,-]+)\])?", _RULES[stamp]["recipe"])
    assert match, stamp
    return match[1].split(",") if match[1] else []


def file_of(module: str) -> Path | None:
    """Return the file of a module of this repository; of a package, the one that runs or initialises it."""
    path = ROOT.joinpath(*module.split("."))
    for file in (path.with_suffix(".py"), path / "__init__.py"):
        if file.is_file():
            return file
    return None


@cache
def imports_of(file: Path) -> frozenset[str]:
    """Return the modules that a file imports. Imports in functions of the service itself are for its extras."""
    lazy = file.relative_to(ROOT).parts[0] in ("app", "metadata", "tasks")
    return frozenset(_imports(ast.parse(file.read_text()).body, lazy=lazy))


def _imports(body: Iterable[ast.stmt], *, lazy: bool) -> Iterator[str]:
    for node in body:
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom(module=str(module)):
                yield module
                yield from (f"{module}.{alias.name}" for alias in node.names)
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                yield from _imports(node.orelse, lazy=lazy)
            # Optional packages are imported in a try statement.
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.Try() if lazy:
                pass
            case _:
                inner = (
                    child for child in ast.walk(node) if child is not node and isinstance(child, _IMPORT_STATEMENTS)
                )
                yield from _imports(inner, lazy=lazy)
                yield from _imports_by_name(node)


def _imports_by_name(node: ast.stmt) -> Iterator[str]:
    """Return the modules that `import_module` imports."""
    for call in ast.walk(node):
        match call:
            case ast.Call(func=ast.Attribute(attr="import_module"), args=[ast.Constant(value=str(name))]):
                yield name
            case _:
                pass


def packages(modules: Iterable[str]) -> dict[str, frozenset[str]]:
    """Return the packages of others that modules import, each with the names of those that may bring it."""
    found: dict[str, frozenset[str]] = {}
    seen: set[str] = set()
    pending = [name for module in modules for name in (module, f"{module}.__main__")]
    while pending:
        module = pending.pop()
        if module in seen:
            continue
        seen.add(module)
        root, _, rest = module.partition(".")
        if root in _OWN_PACKAGES:
            file = file_of(module)
            pending += [module.rpartition(".")[0]] if rest else []
            pending += imports_of(file) if file is not None else []
        elif root and root not in sys.stdlib_module_names:
            found[root] = frozenset(
                map(canonicalize_name, _distributions_of_modules().get(root) or [_DISTRIBUTIONS.get(root, root)])
            )
    return found


@cache
def _distributions_of_modules() -> Mapping[str, list[str]]:
    return packages_distributions()


def test_makefile_targets_are_parsed() -> None:
    assert TARGETS["bench"] == ["tests.benchmarks.serving"]
    assert {"soak", "fuzz", "lock", "fixtures"} <= TARGETS.keys()
    assert "skimage" in packages(["fixtures.backgrounds"])


@pytest.mark.parametrize("target", TARGETS)
def test_target_environment_has_imported_packages(target: str) -> None:
    declared = {canonicalize_name(Requirement(text).name) for text in requirements(*extras_of(target))}
    missing = {module: names for module, names in packages(TARGETS[target]).items() if not names & declared}
    assert missing == {}
