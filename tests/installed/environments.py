"""Environments as users have them: the base dependencies of Charioteer, or those and one extra, and nothing else.

`linked` is cheap: it holds hard links to the installed files of the wanted packages, which it finds as pip does, by
following the requirements from pyproject.toml. `installed` and `layered` are made by pip from a wheel, `made` by the
Makefile. All are kept in ``.venv-installed`` until pyproject.toml changes.
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
"""Extras for work on Charioteer itself; all others are for its users."""
_SECONDS = 900
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
        found = {path.name.partition("-")[0] for path in self.site_packages.glob("*.dist-info")}
        return {str(canonicalize_name(name)) for name in found} - {"charioteer", "pip", "setuptools"}


def requirements(*extras: str) -> list[str]:
    """Return what pyproject.toml requires, with these extras."""
    return [*PROJECT["dependencies"], *(text for extra in extras for text in EXTRAS[extra])]


def closure(texts: Iterable[str]) -> dict[str, Distribution]:
    """Return the packages that pip installs for requirements, by name, as they are installed here.

    Raises:
        PackageNotFoundError: when one of them is not installed here.
    """
    found: dict[str, Distribution] = {}
    followed: set[tuple[str, str]] = set()
    pending = [(Requirement(text), "") for text in texts]
    while pending:
        requirement, extra = pending.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        package = found.setdefault(name, distribution(name))
        for wanted in ("", *requirement.extras):
            if (name, wanted) not in followed:
                followed.add((name, wanted))
                pending += [(Requirement(text), wanted) for text in package.requires or ()]
    return found


def linked(*extras: str) -> Environment:
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

    return _kept("-".join(("linked", *extras)), content, make)


def made() -> Environment:
    """Return the environment that ``make serve`` makes."""

    def make(folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)
        _run("make", f"PYTHON={sys.executable}", f"VENV={folder}", str(folder / ".serve"))

    return _kept("made", "", make)


def wheel(folder: Path) -> Path:
    """Return the wheel of this working tree, built by pip into a folder."""
    _run(sys.executable, "-m", "pip", "wheel", *_QUIETLY, "--no-deps", "--wheel-dir", str(folder), str(ROOT))
    (built,) = folder.glob("*.whl")
    return built


def installed(built: Path) -> Environment:
    """Return an environment with a wheel and the base dependencies, made by pip."""

    def make(folder: Path) -> None:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        _pip(folder, str(built))

    # Without what names the version of the tool that built it, which also differs in the list of digests.
    with zipfile.ZipFile(built) as archive:
        content = sorted(
            f"{each.filename} {each.CRC}"
            for each in archive.infolist()
            if not each.filename.endswith(("WHEEL", "RECORD"))
        )
    return _kept("installed", "\n".join(content), make)


def layered(base: Environment, *extras: str) -> Environment:
    """Return an environment with what pip adds to another for extras; all else is imported from that other one."""

    def make(folder: Path) -> None:
        venv.create(folder, clear=True, symlinks=True, with_pip=True)
        environment = Environment(folder)
        # `addsitedir` also follows the .pth file of an editable install, which a plain path in a .pth file does not.
        follow = f"import site; site.addsitedir({str(base.site_packages)!r})\n"
        (environment.site_packages / "base.pth").write_text(follow)
        _pip(folder, *(text for extra in extras for text in EXTRAS[extra]))
        _write_script(environment)

    return _kept("-".join((base.folder.name, *extras)), str(base.site_packages), make)


_QUIETLY = ("--quiet", "--disable-pip-version-check", "--no-input")


def _link(package: Distribution, environment: Environment) -> None:
    for file in package.files or ():
        # Beside site-packages lie programs, whose first line names the interpreter, and manuals.
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


def _kept(name: str, content: str, make: Callable[[Path], None]) -> Environment:
    """Return the environment called `name`, made again when pyproject.toml, the Python or `content` changed."""
    folder = FOLDER / name
    wanted = hashlib.sha256(
        "\0".join((sys.version, str(ROOT), (ROOT / "pyproject.toml").read_text(), content)).encode()
    ).hexdigest()
    stamp = folder / "made-of.txt"
    with _locked(name):
        if not stamp.is_file() or stamp.read_text() != wanted:
            make(folder)
            stamp.write_text(wanted)
        # The Makefile installs nothing when this is newer than pyproject.toml.
        (folder / ".serve").touch()
    return Environment(folder)


@contextmanager
def _locked(name: str) -> Generator[None]:
    FOLDER.mkdir(exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _pip(folder: Path, *arguments: str) -> None:
    _run(str(folder / "bin" / "python"), "-m", "pip", "install", *_QUIETLY, "--no-compile", *arguments)


def _run(*command: str) -> None:
    """Run a command that installs something; the test is skipped where nothing can be fetched."""
    try:
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=_SECONDS)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{command[0]} did not end within {_SECONDS} s")
    if done.returncode and "No matching distribution" in done.stderr:
        pytest.skip(f"nothing can be installed: {done.stderr.strip().splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
