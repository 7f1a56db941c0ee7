"""The examples of docs/kserve_v1.md, run as they are written."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from typing import Any, cast

import pytest

from tests.support.server_process import ROOT, ServerProcess, serving

PAGE = (ROOT / "docs" / "kserve_v1.md").read_text()
EXAMPLES = re.findall(r"```sh\n(.*?)```\n\n```(json|text)\n(.*?)\n```", PAGE, re.DOTALL)
CASES = {path.name for path in (ROOT / "fixtures" / "wire" / "kserve-v1").iterdir()}


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    with serving() as server:
        assert server.address
        yield server


def close(value: object) -> Any:
    """`value`, its numbers as the page rounds them."""
    if isinstance(value, float):
        return pytest.approx(value, abs=0.06)
    if isinstance(value, list):
        return [close(each) for each in cast("list[object]", value)]
    if isinstance(value, dict):
        return {key: close(each) for key, each in cast("dict[str, object]", value).items()}
    return value


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("curl") is None, reason="the examples need curl")
@pytest.mark.parametrize(("script", "kind", "shown"), EXAMPLES, ids=range(len(EXAMPLES)))
def test_an_example_is_answered_as_the_page_shows(server: ServerProcess, script: str, kind: str, shown: str) -> None:
    script = script.replace("http://127.0.0.1:8080", server.address)
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    if kind == "text":
        assert done.stdout.strip() == shown
    else:
        assert json.loads(done.stdout) == close(json.loads(shown))


def test_every_example_is_run() -> None:
    assert len(EXAMPLES) == PAGE.count("```sh\n") == 7


def test_the_cases_that_the_page_names_are_there() -> None:
    named = re.findall(r"`([a-z0-9-]+)`", PAGE.partition("| KServe | here |")[2])
    named = [name for name in named if "-" in name and not name.endswith("-")]
    assert len(named) > 20
    assert [name for name in named if name not in CASES] == []
