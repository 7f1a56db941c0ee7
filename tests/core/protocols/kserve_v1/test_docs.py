"""Run the examples of docs/kserve.md#kserve-v1 as they are written."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.installed.environments import linked_environment
from tests.support.data.golden import CASES
from tests.support.servers.server_process import ROOT, ServerProcess, run_server

PAGE = (ROOT / "docs" / "kserve.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)```\n\n```(json|text)\n(.*?)\n```", PAGE, re.DOTALL)
NAMES = {case.name for case in CASES if case.protocol == "kserve-v1"}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with run_server(program=linked_environment().command) as server:
        assert server.address
        yield server


def approximate(value: object) -> Any:
    """Return `value` with approximate numbers, because the page rounds them."""
    if isinstance(value, float):
        return pytest.approx(value, abs=0.06)
    if isinstance(value, list):
        return [approximate(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: approximate(item) for key, item in cast("dict[str, object]", value).items()}
    return value


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")
@pytest.mark.parametrize(("script", "kind", "expected_output"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_example_output_matches_the_page(server: ServerProcess, script: str, kind: str, expected_output: str) -> None:
    script = script.replace("http://127.0.0.1:8080", server.address)
    completed = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    if kind == "text":
        assert completed.stdout.strip() == expected_output
    else:
        assert json.loads(completed.stdout) == approximate(json.loads(expected_output))


def test_all_examples_of_the_page_are_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```sh\n") == 7


def test_cases_named_in_the_table_of_differences_exist() -> None:
    _, _, table = (ROOT / "fixtures" / "wire" / "README.md").read_text().partition("\n## KServe V1\n")
    names = re.findall(r"`([a-z0-9-]+)`", table.partition("\n## ")[0])
    names = [name for name in names if "-" in name and not name.endswith("-")]
    assert len(names) > 20
    assert [name for name in names if name not in NAMES] == []
