"""The functions and files on the page about the architecture exist."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def qualified_names(body: list[ast.stmt], prefix: str = "") -> set[str]:
    """Return the names of functions and classes as `__qualname__` has them."""
    names: set[str] = set()
    for node in body:
        if isinstance(node, ast.ClassDef):
            names |= qualified_names(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            names |= {prefix + node.name, *qualified_names(node.body, f"{prefix}{node.name}.<locals>.")}
    return names


def test_functions_of_the_way_of_a_request_exist() -> None:
    table = PAGE.partition("### Its functions")[2].partition("\n## ")[0]
    rows = re.findall(r"`([\w/]+\.py)` \|(.*)\|", table)
    assert len(rows) > 20
    names = {file: qualified_names(ast.parse((ROOT / file).read_text()).body) for file, _ in rows}
    listed = [(file, name) for file, cell in rows for name in re.findall(r"`([^`]+)`", cell)]
    assert [(file, name) for file, name in listed if name not in names[file]] == []


def test_files_on_the_page_exist() -> None:
    paths = re.findall(r"`((?:app|tasks|metadata|tests|fixtures|deploy)/[\w/]+\.py)`", PAGE)
    assert [path for path in paths if not (ROOT / path).exists()] == []
