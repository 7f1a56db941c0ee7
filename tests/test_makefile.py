"""`make help`, and other places that run the checks of the Makefile."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.conftest import LONGEST, SLOW
from tests.support.servers.server_process import ROOT

MAKEFILE = (ROOT / "Makefile").read_text()


def phony_targets() -> list[str]:
    matched = re.search(r"^\.PHONY:((?:.*\\\n)*.*)$", MAKEFILE, re.MULTILINE)
    assert matched
    return matched[1].replace("\\\n", " ").split()


def test_help_lists_every_target_once_in_its_group() -> None:
    output = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    groups = re.findall(r"^(\w+):$", output, re.MULTILINE)
    assert groups == ["run", "test", "measure", "release"]
    assert sorted(re.findall(r"^  ([a-z-]+) +\S", output, re.MULTILINE)) == sorted(phony_targets())


def test_pre_commit_runs_the_tools_of_make_check() -> None:
    configuration: Any = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    hooks = [hook for repository in configuration["repos"] for hook in repository["hooks"]]
    recipes = re.findall(r"^check-\w+:.*\n((?:\t.*\n)+)", MAKEFILE, re.MULTILINE)
    lines = [line for recipe in recipes for line in recipe.splitlines()]
    commands = [line.removeprefix("\t@$(BIN)/").removesuffix(" .") for line in lines]
    entries = [hook["entry"].removeprefix(".venv/bin/").removesuffix(" --force-exclude") for hook in hooks]
    assert sorted(entries) == sorted(commands)
    assert len(recipes) == 2
    assert {hook["language"] for hook in hooks} == {"system"}


def test_slow_and_long_tests_have_existing_paths() -> None:
    assert [path for path in (*SLOW, *LONGEST) if not path.exists()] == []


def test_check_fails_if_one_of_its_parts_fails(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("ruff", "pyright", "lint-imports", "codespell", "python"):
        (programs / name).write_text("#!/bin/sh\necho $0\n")
        (programs / name).chmod(0o755)
    stamp = tmp_path / ".check"
    stamp.touch()
    command = ["make", f"VENV={tmp_path}", "check"]
    passed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert passed.returncode == 0, passed.stderr
    assert passed.stdout.count("/bin/") == 7
    for name in ("pyright", "codespell"):
        program = (programs / name).read_text()
        (programs / name).write_text("#!/bin/sh\nexit 1\n")
        assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode != 0
        (programs / name).write_text(program)


def test_hosted_ci_runs_the_gate() -> None:
    workflow: Any = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert ".ci/run" in [step.get("run") for job in workflow["jobs"].values() for step in job["steps"]]


def test_gate_runs_every_part_and_fails_if_one_fails(tmp_path: Path) -> None:
    make = tmp_path / "make"
    make.write_text(f'#!/bin/sh\necho "made $*"\necho "$*" >>{tmp_path}/targets\ntest "$*" != "$FAILING"\n')
    make.chmod(0o755)
    checks = "--keep-going check docs"
    parts = ["--jobs=2 database .venv/.test", "test", ".venv/.gate", checks, "test-slow ONLY=--affected"]
    for failing in ("none", *parts):
        (tmp_path / "targets").write_text("")
        environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "FAILING": failing}
        run = subprocess.run([ROOT / ".ci" / "run"], env=environment, capture_output=True, text=True, timeout=60)
        assert (run.returncode == 0) == (failing == "none"), failing
        if failing == "none":
            assert sorted((tmp_path / "targets").read_text().splitlines()) == sorted([*parts, "browser"])
            assert f"made {checks}" in run.stdout


def test_serve_shows_the_packages_takes_a_port_and_fails_if_the_installation_fails(tmp_path: Path) -> None:
    (programs := tmp_path / "bin").mkdir()
    for name, line in (("python", "printf 'Collecting a>=1\\nNote\\nCollecting b\\n'"), ("charioteer", 'echo "$@"')):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    command = ["make", f"VENV={tmp_path}", "PORT=8090", "serve"]
    # `make test` passes its own options on, which print folders.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    served = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=True, env=environment
    ).stdout
    assert served.splitlines()[1:] == ["  1 a>=1", "  2 b", "serve --demo --port 8090"]
    (tmp_path / ".serve").unlink()
    (programs / "python").write_text("#!/bin/sh\nexit 1\n")
    assert subprocess.run(command, cwd=ROOT, capture_output=True, timeout=60).returncode != 0
    assert not (tmp_path / ".serve").exists()
