"""Create a user project whose packages have the names of our packages."""

import os
from pathlib import Path

from tests.support.servers.server_process import ROOT

PACKAGES = ("app", "metadata", "tasks")

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
"""Environment with Charioteer on the import path, after the current folder."""


def make_project(folder: Path) -> Path:
    """Write a project with packages `app`, `metadata` and `tasks`, and a test that imports them."""
    for name in PACKAGES:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(f"OWNER = 'project {name}'\n")
    (folder / "conftest.py").write_text("")
    (folder / "test_project.py").write_text(_TEST)
    return folder


_TEST = """import app, metadata, tasks

def test_the_packages_of_the_project_are_imported():
    assert [each.OWNER for each in (app, metadata, tasks)] == ["project app", "project metadata", "project tasks"]
"""
