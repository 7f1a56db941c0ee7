"""Build the package with Hatchling. A wheel also has the guide, `app/guide`, which MkDocs makes of docs/."""

import os
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hatchling import build
from hatchling.build import *  # noqa: F403  the other functions of a build backend
from hatchling.builders.hooks.plugin.interface import BuildHookInterface


def get_requires_for_build_wheel(config_settings: dict[str, Any] | None = None) -> list[str]:
    """Return the packages that building a wheel needs; an editable install needs no MkDocs."""
    extras = tomllib.loads(Path("pyproject.toml").read_text())["project"]["optional-dependencies"]
    return [*build.get_requires_for_build_wheel(config_settings), *extras["docs"]]


class GuideHook(BuildHookInterface[Any]):
    """Build the guide before the wheel; Hatchling finds this class."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Add the guide to the files of the wheel."""
        if version == "editable":
            return
        if find_spec("mkdocs") is None:
            self.app.display_warning("The wheel has no guide, because MkDocs is not installed")
            return
        command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet"]
        subprocess.run(command, cwd=self.root, env={**os.environ, "NO_MKDOCS_2_WARNING": "1"}, check=True)
        site = Path(self.root, "build", "site")
        for file in filter(Path.is_file, site.rglob("*")):
            # Nothing in an English site loads the stemmers of other languages, and source maps are for developers.
            if file.suffix != ".map" and file.parent.name != "lunr":
                build_data["force_include"][str(file)] = f"app/guide/{file.relative_to(site)}"
