"""Install packages with uv, which needs less processor time than pip.

``python -m tests.installed.uv EXTRA...`` installs Charioteer with extras. uv reads no settings of pip, so they are
translated. Where that is impossible, nothing is installed, and pip can do it.
"""

import ast
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import distributions
from importlib.util import find_spec
from pathlib import Path

ROOT = Path(__file__).parents[2]
_PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check")
_OPTIONS: Mapping[str, str] = {
    "constraint": "--constraints",
    "extra-index-url": "--index",
    "find-links": "--find-links",
    "index-url": "--default-index",
    "trusted-host": "--allow-insecure-host",
}
"""The option of uv for each setting of pip that says where packages are."""
_VARIABLES: Mapping[str, str] = {
    "cert": "SSL_CERT_FILE",
    "default-timeout": "UV_HTTP_TIMEOUT",
    "timeout": "UV_HTTP_TIMEOUT",
}
_OF_NO_EFFECT = frozenset(
    {"break-system-packages", "disable-pip-version-check", "no-cache-dir", "no-color", "no-compile", "no-input",
     "no-python-version-warning", "no-warn-script-location", "progress-bar", "quiet", "require-virtualenv", "retries",
     "root-user-action", "verbose"}
)  # fmt: skip
"""Settings of pip that change no installed file."""


def translate(settings: str) -> tuple[list[str], dict[str, str]] | None:
    """Return options and variables of uv for the output of ``pip config list``, or None if a setting is unknown."""
    values: dict[str, str] = {}
    lines = [line.partition("=") for line in settings.splitlines()]
    # A variable has precedence over the section of a command, and that over all commands.
    for section in ("global.", "install.", ":env:."):
        values |= {name.removeprefix(section): value for name, _, value in lines if name.startswith(section)}
    if not values.keys() <= {*_OPTIONS, *_VARIABLES, *_OF_NO_EFFECT}:
        return None
    # pip takes the newest version of all indexes, and uv by default that of the first one which has the package.
    options = ["--index-strategy", "unsafe-best-match"]
    for name in _OPTIONS.keys() & values.keys():
        options += [word for value in ast.literal_eval(values[name]).split() for word in (_OPTIONS[name], value)]
    return options, {_VARIABLES[name]: ast.literal_eval(values[name]) for name in _VARIABLES.keys() & values.keys()}


def install_extras(*extras: str) -> bool:
    """Install Charioteer with extras in this environment, as an editable one; return False if that fails."""
    return _uv("install", "--python", sys.executable, "--editable", f".[{','.join(extras)}]")


def install(python: Path, installed: Path, *requirements: str) -> bool:
    """Install what requirements add to the packages of the folder `installed` into the environment of `python`.

    Return False if that fails, so that pip can install them, or report why it cannot.
    """
    # The index writes names in lower case and with hyphens.
    packages = distributions(path=[str(installed)])
    present = {re.sub(r"[-_.]+", "-", package.name).lower(): package.version for package in packages}
    with tempfile.TemporaryDirectory() as name:
        wanted, resolved = Path(name, "wanted.txt"), Path(name, "resolved.txt")
        wanted.write_text("\n".join(requirements))
        # uv keeps the versions of the file that it overwrites, as pip keeps installed ones.
        resolved.write_text(_lines(present.items()))
        settings = ("--no-annotate", "--no-header", "--python", str(python), "--output-file", str(resolved))
        if not _uv("compile", *settings, str(wanted)):
            return False
        pairs = [line.partition("==")[::2] for line in resolved.read_text().splitlines()]
        wanted.write_text(_lines((name, version) for name, version in pairs if present.get(name) != version))
        return _uv("install", "--python", str(python), "--no-deps", "--requirements", str(wanted))


def _lines(packages: Iterable[tuple[str, str]]) -> str:
    return "".join(f"{name}=={version}\n" for name, version in packages)


@cache
def _translated() -> tuple[list[str], dict[str, str]] | None:
    listed = subprocess.run((*_PIP, "config", "list"), capture_output=True, text=True)
    return translate(listed.stdout) if listed.returncode == 0 else None


def _uv(command: str, *arguments: str) -> bool:
    """Run a command of uv with pip's settings; return whether it succeeds, which needs uv and settings that uv has."""
    translated = _translated() if find_spec("uv") else None
    if translated is None:
        return False
    options, variables = translated
    line = [sys.executable, "-m", "uv", "pip", command, "--quiet", *options, *arguments]
    return subprocess.run(line, cwd=ROOT, env={**os.environ, **variables}, capture_output=True).returncode == 0


if __name__ == "__main__":
    sys.exit(0 if install_extras(*sys.argv[1:]) else 1)
