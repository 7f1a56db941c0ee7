"""Checks as tests of a user's pytest run."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import httpcore
import pytest

from app.plugins.conformance import pytest_plugin
from tests.plugins.conformance.tiny_engine import tiny_engine
from tests.support.models.colliding_packages import ENVIRONMENT, make_project

pytest_plugins = ["pytester"]

# A nested run drops its imports. Modules imported here stay, so that exception classes stay the same.
PRELOADED = (httpcore, pytest_plugin)

V1 = ("--conform-protocol", "v1")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest in a project without our code."""
    return pytester.runpytest_inprocess("-p", "charioteer_pytest", "-p", "no:cacheprovider", *arguments)


def test_each_check_is_a_test_beside_those_of_the_project(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): pass")
    with tiny_engine() as url:
        result = run(pytester, "--conform-url", url, *V1, "-v", "-rsx")
    assert result.ret == 0
    result.assert_outcomes(passed=13, xfailed=2)
    result.stdout.fnmatch_lines(["*charioteer::v1::V1-006 PASSED*"])
    result.stdout.fnmatch_lines(["XFAIL *V1-014 - A CloudEvent in ce- headers is answered with one. Expected*"])


def test_failed_must_check_shows_the_exchange(pytester: pytest.Pytester) -> None:
    with tiny_engine(faulty=True) as url:
        result = run(pytester, "--conform-url", url, *V1, "--junit-xml", "junit.xml")
    assert result.ret == 1
    result.assert_outcomes(passed=10, failed=1, skipped=1, xfailed=2)
    result.stdout.fnmatch_lines(
        ["V1-006 MUST: There is one prediction for each instance.", "Expected 2 predictions, got *",
         "POST /v1/models/half:predict", '*{"instances":*', "-> 200", '{"predictions": *']
    )  # fmt: skip
    assert "Traceback" not in result.stdout.str()
    (suite,) = ET.parse(pytester.path / "junit.xml").getroot()
    cases = {case.get("name"): case for case in suite.findall("testcase")}
    assert cases["V1-006"].find("failure") is not None
    properties = {entry.get("name") for entry in cases["V1-006"].findall("properties/property")}
    assert properties == {"level", "sentence", "source"}


def test_selected_check_runs_the_checks_it_requires(pytester: pytest.Pytester) -> None:
    with tiny_engine(faulty=True) as url:
        result = run(pytester, "--conform-url", url, *V1, "-k", "V1-007", "-rs")
    result.assert_outcomes(skipped=1, deselected=13)
    result.stdout.fnmatch_lines(["SKIPPED * not tested: V1-006 failed"])


def test_collect_only_sends_no_requests(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--conform-url", "http://127.0.0.1:1", *V1, "--collect-only", "-q")
    assert result.ret == 0
    assert "charioteer::v1::V1-001" in result.stdout.str()


def test_unreachable_engine_is_an_error_of_each_check(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--conform-url", "http://127.0.0.1:1", *V1)
    assert result.ret == 1
    result.assert_outcomes(errors=14)
    assert "http://127.0.0.1:1: [Errno 111] Connection refused" in result.stdout.str()


def test_invalid_option_is_a_usage_error(pytester: pytest.Pytester) -> None:
    result = run(pytester, "--conform-url", "http://127.0.0.1:1", "--conform-image", "nowhere.png")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert "nowhere.png" in result.stderr.str()
    assert "Traceback" not in result.stderr.str()


def test_entry_point_loads_beside_a_foreign_app(tmp_path: Path) -> None:
    (tmp_path / "app").mkdir()
    (tmp_path / "app" / "__init__.py").write_text("OWNER = 'theirs'")
    (tmp_path / "test_own.py").write_text(
        "import sys\n\n\ndef test_own():\n    import app\n    assert app.OWNER == 'theirs'\n"
        "    assert 'charioteer_pytest' in sys.modules\n    assert 'httpx' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "charioteer_pytest", "-q", "-W", "error"]
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    result = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "1 passed" in result.stdout


@pytest.mark.slow
def test_checks_run_in_a_project_with_packages_of_our_names(tmp_path: Path) -> None:
    options = ["-q", "-p", "charioteer_pytest", "-p", "no:cacheprovider", *V1]
    with tiny_engine() as url:
        command = [sys.executable, "-m", "pytest", *options, "--conform-url", url]
        environment = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        project = make_project(tmp_path / "project")
        result = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=60)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "xfailed" in result.stdout
