"""Clauses as tests of somebody's pytest run."""

import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import httpcore
import pytest

from app.conformance import pytest_plugin
from tests.app.conformance.tiny_engine import tiny_engine
from tests.support.own_packages import ENVIRONMENT, make_project

pytest_plugins = ["pytester"]

# A run inside a run forgets what it imported: what is imported here stays, so that exceptions stay the same classes.
STAYS = (httpcore, pytest_plugin)

V1 = ("--conform-protocol", "v1")


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """A run of a project that has none of ours in it."""
    return pytester.runpytest_inprocess("-p", "charioteer_pytest", "-p", "no:cacheprovider", *arguments)


def test_each_clause_is_a_test(pytester: pytest.Pytester) -> None:
    with tiny_engine() as url:
        done = run(pytester, "--conform-url", url, *V1, "-v", "-rsx")
    assert done.ret == 0
    done.assert_outcomes(passed=12, xfailed=2)
    done.stdout.fnmatch_lines(["*charioteer::v1::V1-006 PASSED*"])
    done.stdout.fnmatch_lines(["XFAIL *V1-014 - A CloudEvent in ce- headers is answered with one. Expected*"])


def test_a_must_that_is_broken_fails_with_the_evidence(pytester: pytest.Pytester) -> None:
    with tiny_engine(faulty=True) as url:
        done = run(pytester, "--conform-url", url, *V1, "--junit-xml", "junit.xml")
    assert done.ret == 1
    done.assert_outcomes(passed=10, failed=1, skipped=1, xfailed=2)
    done.stdout.fnmatch_lines(
        [
            "V1-006 MUST: There is one prediction for each instance.",
            "Expected 2 predictions, got *",
            "POST /v1/models/half:predict",
            '*{"instances":*',
            "-> 200",
            '{"predictions": *',
        ]
    )
    assert "Traceback" not in done.stdout.str()
    (suite,) = ET.parse(pytester.path / "junit.xml").getroot()
    named = {each.get("name"): each for each in suite.findall("testcase")}
    assert named["V1-006"].find("failure") is not None
    assert {each.get("name") for each in named["V1-006"].findall("properties/property")} == {
        "level",
        "sentence",
        "source",
    }


def test_a_clause_alone_looks_at_those_that_it_rests_on(pytester: pytest.Pytester) -> None:
    with tiny_engine(faulty=True) as url:
        done = run(pytester, "--conform-url", url, *V1, "-k", "V1-007", "-rs")
    done.assert_outcomes(skipped=1, deselected=13)
    done.stdout.fnmatch_lines(["SKIPPED * not tested: V1-006 failed"])


def test_somebodys_own_tests_run_too(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("def test_own(): pass")
    with tiny_engine() as url:
        done = run(pytester, "--conform-url", url, *V1)
    done.assert_outcomes(passed=13, xfailed=2)


def test_nothing_is_asked_when_tests_are_only_listed(pytester: pytest.Pytester) -> None:
    done = run(pytester, "--conform-url", "http://127.0.0.1:1", *V1, "--collect-only", "-q")
    assert done.ret == 0
    assert "charioteer::v1::V1-001" in done.stdout.str()


def test_an_engine_that_is_not_there_is_an_error_of_each_clause(pytester: pytest.Pytester) -> None:
    done = run(pytester, "--conform-url", "http://127.0.0.1:1", *V1)
    assert done.ret == 1
    done.assert_outcomes(errors=14)
    assert "http://127.0.0.1:1: [Errno 111] Connection refused" in done.stdout.str()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("engine.local",), "http:// or https://"),
        (("http://127.0.0.1:1", "--conform-protocol", "soap"), "chariot-v2-kserve"),
        (("http://127.0.0.1:1", "--conform-protocol", "v2-grpc"), "grpc:// or grpcs://"),
        (("http://127.0.0.1:1", "--conform-task-type", "CATS"), "OBJECT_DETECTION"),
        (("http://127.0.0.1:1", "--conform-image", "nowhere.png"), "nowhere.png"),
        (("http://127.0.0.1:1", "--conform-header", "secret"), "Name: value"),
    ],
)
def test_what_makes_no_sense_is_a_usage_error(pytester: pytest.Pytester, arguments: tuple[str, ...], said: str) -> None:
    done = run(pytester, "--conform-url", *arguments)
    assert done.ret == pytest.ExitCode.USAGE_ERROR
    assert said in done.stderr.str()
    assert "Traceback" not in done.stderr.str()


def run_beside_foreign_app(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Load the entry point in a project whose own package is called ``app``, as ours is."""
    (folder / "app").mkdir()
    (folder / "app" / "__init__.py").write_text("OWNER = 'theirs'")
    (folder / "test_own.py").write_text(
        "import sys\n\n\ndef test_own():\n    import app\n    assert app.OWNER == 'theirs'\n"
        "    assert 'charioteer_pytest' in sys.modules\n    assert 'httpx' not in sys.modules\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "charioteer_pytest", "-q", "-W", "error", *arguments]
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PATH": ""}
    return subprocess.run(command, cwd=folder, env=alone, capture_output=True, text=True, timeout=60)


def test_entry_point_loads_beside_a_foreign_app(tmp_path: Path) -> None:
    done = run_beside_foreign_app(tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_an_engine_is_asked_from_a_project_with_packages_of_our_names(tmp_path: Path) -> None:
    options = ["-q", "-p", "charioteer_pytest", "-p", "no:cacheprovider", *V1]
    with tiny_engine() as url:
        command = [sys.executable, "-m", "pytest", *options, "--conform-url", url]
        environment = {**ENVIRONMENT, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        project = make_project(tmp_path / "project")
        done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "xfailed" in done.stdout
