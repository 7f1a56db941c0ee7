"""The page about the architecture shows the way that a request takes, and this way is short."""

import re
from pathlib import Path

import pytest

from tests.support.request_trace import Trace, trace_detection

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
_TABLE, _, _HELPERS = PAGE.partition("### Its functions")[2].partition("\n## ")[0].partition("Helpers:")

MAX_FILES, MAX_FUNCTIONS = 34, 105
"""Files and functions of the product that a detection runs. The numbers may only fall."""
MAX_FILE_LINES, MAX_FUNCTION_LINES = 300, 60


@pytest.fixture(scope="module")
def trace() -> Trace:
    return trace_detection()


@pytest.mark.slow
def test_way_of_a_request_is_short(trace: Trace) -> None:
    assert len(trace.files) <= MAX_FILES
    assert len(trace.steps) <= MAX_FUNCTIONS, "print them with python -m tests.support.request_trace"
    assert [file for file in trace.files if len((ROOT / file).read_text().splitlines()) > MAX_FILE_LINES] == []
    assert [step.name for step in trace.steps if step.lines > MAX_FUNCTION_LINES] == []


@pytest.mark.slow
def test_page_shows_the_way_of_a_request(trace: Trace) -> None:
    rows = re.findall(r"`([\w/]+\.py)` \|(.*)\|", _TABLE)
    assert [(file, name) for file, cell in rows for name in re.findall(r"`([^`]+)`", cell)] == trace.way
    helpers = re.findall(r"`([\w/]+\.py)`", _HELPERS)
    assert sorted(helpers) == sorted({*trace.files} - {file for file, _ in trace.way})


def test_files_on_the_page_exist() -> None:
    paths = re.findall(r"`((?:app|tasks|metadata|tests|fixtures|deploy)/[\w/]+\.py)`", PAGE)
    assert [path for path in paths if not (ROOT / path).exists()] == []
