"""Create environments as users have them: the base dependencies of Charioteer, or those and one extra.

`linked` is fast: it creates hard links to installed files, and resolves the requirements of pyproject.toml as pip does.
pip creates `installed` and `layered` from a wheel, and the Makefile creates `made`. All are cached in
``.venv-installed`` until pyproject.toml changes.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from collections.abc import Callable, Generator, Iterable, Mapping
from contextlib import contextmanager
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.server_process import ROOT

FOLDER = ROOT / ".venv-installed"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
DEVELOPER_EXTRAS = frozenset({"bench", "check", "docs", "fixtures", "fuzz", "supply", "test", "test-slow"})
"""Extras for developers of Charioteer; all others are for users."""
_TIMEOUT_SECONDS = 900
_SITE_PACKAGES = Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
_SCRIPT = """#!{python}
import sys

from {module} import {name}

sys.exit({name}())
"""


class Environment(NamedTuple):
    """A virtual environment."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def charioteer(self) -> Path:
        return self.folder / "bin" / "charioteer"

    @property
    def site_packages(self) -> Path:
        return self.folder / _SITE_PACKAGES

    def packages(self) -> set[str]:
        """Return the names of the installed packages, without those that `venv` puts into each environment."""
        names = {path.name.partition("-")[0] for path in self.site_packages.glob("*.dist-info")}
        return {str(canonicalize_name(name)) for name in names} - {"charioteer", "pip", "setuptools"}


def requirements(*extras: str) -> list[str]:
    """Return the requirements in pyproject.toml, with these extras."""
    return [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]


def closure(texts: Iterable[str]) -> dict[str, Distribution]:
    """Return the packages that pip installs for requirements, by name, as they are installed here.

    Raises:
        PackageNotFoundError: when one of them is not installed here.
    """
    packages: dict[str, Distribution] = {}
    visited: set[tuple[str, str]] = set()
    pending = [(Requirement(text), "") for text in texts]
    while pending:
        requirement, extra = pending.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        package = packages.setdefault(name, distribution(name))
        for package_extra in ("", *requirement.extras):
            if (name, package_extra) not in visited:
                visited.add((name, package_extra))
                pending += [(Requirement(text), package_extra) for text in package.requires or ()]
    return packages


def linked_environment(*extras: str) -> Environment:
    """Return an environment with the packages that ``pip install --editable .[extras]`` installs, linked from here."""
    try:
        packages = closure(requirements(*extras))
    except PackageNotFoundError as error:
        pytest.fail(f"{error}; install the environment of the tests again with `make test`")
    content = "\n".join(sorted(f"{name} {package.version}" for name, package in packages.items()))

    def make(folder: Path) -> None:
        venv.create(folder, clear=True, symlinks=True)
        environment = Environment(folder)
        for package in packages.values():
            _link(package, environment)
        (environment.site_packages / "charioteer.pth").write_text(f"{ROOT}\n{ROOT / 'app' / 'top_level'}\n")
        _write_script(environment)

    return _cached("-".join(("linked", *extras)), content, make)


def makefile_environment() -> Environment:
    """Return the environment that ``make serve`` creates."""

    def make(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _run("make", f"PYTHON={sys.executable}", f"VENV={folder}", str(folder / ".serve"))

    return _cached("made", "", make)


def build_wheel(folder: Path) -> Path:
    """Return the wheel of this working tree, built by pip into a folder."""
    _run(sys.executable, "-m", "pip", "wheel", *_QUIET_OPTIONS, "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def wheel_environment(wheel_file: Path) -> Environment:
    """Return an environment with a wheel and the base dependencies, made by pip."""

    def make(folder: Path) -> None:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        _pip(folder, str(wheel_file))

    # WHEEL names the version of the build tool, and RECORD has the digest of WHEEL.
    with zipfile.ZipFile(wheel_file) as archive:
        content = sorted(
            f"{file.filename} {file.CRC}"
            for file in archive.infolist()
            if not file.filename.endswith(("WHEEL", "RECORD"))
        )
    return _cached("installed", "\n".join(content), make)


def environment_with_extras(base: Environment, *extras: str) -> Environment:
    """Return an environment with the packages that extras add to `base`; all others are imported from `base`."""

    def make(folder: Path) -> None:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        environment = Environment(folder)
        # `addsitedir` also follows the .pth file of an editable install, which a plain path in a .pth file does not.
        follow = f"import site; site.addsitedir({str(base.site_packages)!r})\n"
        (environment.site_packages / "base.pth").write_text(follow)
        _pip(folder, *(text for extra in extras for text in EXTRAS[extra]))
        _write_script(environment)

    return _cached("-".join((base.folder.name, *extras)), str(base.site_packages), make)


_QUIET_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-input")


def _link(package: Distribution, environment: Environment) -> None:
    for file in package.files or ():
        # Outside site-packages are manuals, and programs whose first line names the interpreter.
        if ".." in file.parts:
            continue
        target = environment.site_packages / file
        target.parent.mkdir(parents=True, exist_ok=True)
        source = Path(str(package.locate_file(file)))
        try:
            os.link(source, target)
        except FileExistsError:
            continue
        except OSError:
            shutil.copy2(source, target)


def _write_script(environment: Environment) -> None:
    module, _, name = PROJECT["scripts"]["charioteer"].partition(":")
    environment.charioteer.write_text(_SCRIPT.format(python=environment.python, module=module, name=name))
    environment.charioteer.chmod(0o755)


def _cached(name: str, content: str, make: Callable[[Path], None]) -> Environment:
    """Return the environment `name`; create it again when pyproject.toml, Python or `content` changed."""
    folder = FOLDER / name
    digest = hashlib.sha256(
        "\0".join((sys.version, str(ROOT), (ROOT / "pyproject.toml").read_text(), content)).encode()
    ).hexdigest()
    stamp = folder / "made-of.txt"
    with _file_lock(name):
        if not stamp.is_file() or stamp.read_text() != digest:
            make(folder)
            stamp.write_text(digest)
        # The Makefile installs nothing when this is newer than pyproject.toml.
        (folder / ".serve").touch()
    return Environment(folder)


@contextmanager
def _file_lock(name: str) -> Generator[None]:
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pip(folder: Path, *arguments: str) -> None:
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", *_QUIET_OPTIONS, "--no-compile", *arguments)


def _run(*command: str) -> None:
    """Run a command that installs packages; skip the test if none can be downloaded."""
    try:
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} did not end within {_TIMEOUT_SECONDS} s")
    if process.returncode and "No matching distribution" in process.stderr:
        pytest.skip(f"nothing can be installed: {process.stderr.strip().splitlines()[-1]}")
    assert process.returncode == 0, process.stderr
