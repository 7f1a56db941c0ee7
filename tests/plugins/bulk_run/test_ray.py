"""Runs on a real Ray, started in the folder of a project that has packages of our names."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.installed.environments import ray_environment
from tests.plugins.bulk_run.test_command import DETECTOR, answers, run, write_images
from tests.support.models.colliding_packages import ENVIRONMENT, make_project


@pytest.mark.slow
def test_lost_ray_worker_changes_no_result_and_ray_map_answers_in_own_pipelines(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images", 250)
    process = subprocess.run(
        [ray_environment().python, "-m", "tests.plugins.bulk_run.cluster", DETECTOR, images, tmp_path / "out"],
        cwd=make_project(tmp_path / "project"),
        env={**ENVIRONMENT, "RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert process.returncode == 0, process.stderr[-3000:]
    report = json.loads(process.stdout.splitlines()[-1])
    assert (report["status"], report["killed"]) == (0, 1)
    assert run(images, tmp_path / "local")[0] == 0
    assert answers(tmp_path / "out") == answers(tmp_path / "local")
    assert len(report["rows"]) == 251
    assert report["rows"][0] == ["000.jpg", ["yellow circle", "purple star"], None]
    assert report["rows"][-1] == ["bad.jpg", None, "invalid_request"]
