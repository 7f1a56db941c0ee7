"""Create environments as users have them: the base dependencies of Charioteer, or those and one extra.

`linked_environment` is fast: it creates links to installed packages, and resolves the requirements of pyproject.toml
as pip does. `wheel_environment` adds a wheel, and `layered_environment` what is downloaded. The Makefile completes the
one that all must equal. They are cached in ``.venv-installed`` until pyproject.toml changes.
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
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from importlib.util import cache_from_source
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.installed import uv
from tests.support.servers.server_process import ROOT

FOLDER = ROOT / ".venv-installed"
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS: Mapping[str, list[str]] = PROJECT["optional-dependencies"]
DEVELOPER_EXTRAS = frozenset({"bench", "check", "docs", "fixtures", "supply", "test", "test-slow"})
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
    def command(self) -> Sequence[str]:
        """How to run Charioteer in it: where torch is installed, a model with text takes ten seconds more to load."""
        return str(self.python), "-m", "charioteer"

    @property
    def site_packages(self) -> Path:
        return self.folder / _SITE_PACKAGES

    def packages(self) -> set[str]:
        """Return the names of the installed packages, without those that `venv` puts into each environment."""
        names = {path.name.partition("-")[0] for path in self.site_packages.glob("*.dist-info")}
        return {str(canonicalize_name(name)) for name in names} - {"charioteer", "pip", "setuptools"}


def requirements(*extras: str) -> list[str]:
    """Return the requirements in pyproject.toml, with these extras and those that they name."""
    texts = [text for extra in extras for text in EXTRAS[extra]]
    own = [requirement for requirement in map(Requirement, texts) if requirement.name == PROJECT["name"]]
    named = [text for requirement in own for extra in requirement.extras for text in EXTRAS[extra]]
    return [*PROJECT["dependencies"], *texts, *named]


def closure(texts: Iterable[str]) -> dict[str, Distribution]:
    """Return the packages that pip installs for requirements, by name, as they are installed here.

    Raise PackageNotFoundError when one of them is not installed here.
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


@cache
def linked_environment(*extras: str) -> Environment:
    """Return an environment with the packages that ``pip install --editable .[extras]`` installs, linked from here."""
    packages, content = _linked_packages(*extras)

    def make(folder: Path) -> None:
        environment = _link_all(packages, folder)
        (environment.site_packages / "charioteer.pth").write_text(f"{ROOT}\n{ROOT / 'app' / 'public_api'}\n")
        _write_script(environment)

    return _cached("-".join(("linked", *extras)), content, make)


def makefile_environment() -> Environment:
    """Return the environment that ``make serve`` creates.

    The dependencies are linked from here before the Makefile calls pip, which installs only what it finds missing.
    """
    packages, content = _linked_packages()

    def make(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        variables = (f"PYTHON={sys.executable}", f"VENV={folder}")
        _run("make", *variables, str(folder / "bin" / "python"))
        for package in packages.values():
            _link_files(package.files or (), Environment(folder))
        _run("make", *variables, str(folder / ".serve"))

    return _cached("made", content, make)


def wheel_environment(wheel_file: Path) -> Environment:
    """Return an environment with a wheel that pip installed, and its dependencies, linked from here."""
    packages, content = _linked_packages()

    def make(folder: Path) -> None:
        _link_all(packages, folder)
        _pip(folder, "--no-deps", str(wheel_file))

    return _cached("wheel", f"{content}\n{hashlib.sha256(wheel_file.read_bytes()).hexdigest()}", make)


def layered_environment(base: Environment, name: str, *texts: str) -> Environment:
    """Return an environment with the packages that requirements add to `base`; all others are imported from `base`."""

    def make(folder: Path) -> None:
        environment = _create(folder)
        # `addsitedir` also follows the .pth file of an editable install, which a plain path in a .pth file does not.
        follow = f"import site; site.addsitedir({str(base.site_packages)!r})\n"
        (environment.site_packages / "base.pth").write_text(follow)
        if not uv.install(environment.python, base.site_packages, *texts):
            _pip(folder, *texts)
        _write_script(environment)

    return _cached(name, "\n".join([str(base.site_packages), *texts]), make)


def ray_environment() -> Environment:
    """Return the environment of all tests that run on Ray, because it is large."""
    return layered_environment(linked_environment("drift", "parquet"), "ray", *EXTRAS["ray"])


_QUIET_OPTIONS = ("--quiet", "--disable-pip-version-check", "--no-input")


def _create(folder: Path) -> Environment:
    """Create an empty environment without pip, whose installation would take seconds."""
    venv.create(folder, clear=True, symlinks=True)
    return Environment(folder)


def _linked_packages(*extras: str) -> tuple[Mapping[str, Distribution], str]:
    """Return the packages that Charioteer and its extras need, and a text that changes with their versions."""
    try:
        packages = closure(requirements(*extras))
    except PackageNotFoundError as error:
        pytest.fail(f"{error}; install the environment of the tests again with `make test`")
    return packages, "\n".join(sorted(f"{name} {package.version}" for name, package in packages.items()))


def _link_all(packages: Mapping[str, Distribution], folder: Path) -> Environment:
    environment = _create(folder)
    for package in packages.values():
        _link(package, environment)
    return environment


def _link(package: Distribution, environment: Environment) -> None:
    """Link the folders that are importable packages, so that all environments share their bytecode, and other files."""
    files = package.files or ()
    folders = {file.parts[0]: Path(str(file.locate())).parent for file in files if file.parts[1:] == ("__init__.py",)}
    for name, folder in folders.items():
        (environment.site_packages / name).symlink_to(folder)
    _link_files((file for file in files if file.parts[0] not in folders), environment)


def _link_files(files: Iterable[PackagePath], environment: Environment) -> None:
    """Create hard links, so that pip may replace files."""
    for file in files:
        # Outside site-packages are manuals, and programs whose first line names the interpreter.
        if ".." in file.parts:
            continue
        source, target = Path(str(file.locate())), environment.site_packages / file
        _link_file(source, target)
        # Compiling takes longer than all other work of a first command, and imports here have done most of it.
        bytecode = Path(cache_from_source(str(source)))
        if source.suffix == ".py" and bytecode.exists():
            _link_file(bytecode, target.parent / "__pycache__" / bytecode.name)


def _link_file(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except FileExistsError:
        pass
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
    python = str(folder / "bin" / "python")
    _run(sys.executable, "-m", "pip", "--python", python, "install", *_QUIET_OPTIONS, "--no-compile", *arguments)


def _run(*command: str) -> None:
    """Run a command that installs packages; skip the test if none can be downloaded."""
    try:
        process = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} did not end within {_TIMEOUT_SECONDS} s")
    if process.returncode and "No matching distribution" in process.stderr:
        pytest.skip(f"nothing can be installed: {process.stderr.strip().splitlines()[-1]}")
    assert process.returncode == 0, process.stderr
