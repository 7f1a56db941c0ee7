"""The locks are whole, of one solution, and what pyproject.toml allows. `make lock` writes them."""

import re
import tomllib
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.lock import EXTRAS
from tests.deploy.locks import LOCKS, SHIPPED, here, read, text_of
from tests.support.server_process import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED: dict[str, list[str]] = {
    "base": PROJECT["project"]["dependencies"],
    "build": PROJECT["build-system"]["requires"],
    **PROJECT["project"]["optional-dependencies"],
}
WITHOUT_LOCK = {"bench", "check", "docs", "fixtures", "fuzz", "maite", "ray", "supply", "test", "test-slow"}
ADVICE = "run `make lock`"


def wanted(text: str) -> Requirement | None:
    found = Requirement(text)
    return found if found.marker is None or found.marker.evaluate({"extra": ""}) else None


def test_every_extra_that_an_image_may_have_is_locked() -> None:
    assert {*EXTRAS} | WITHOUT_LOCK >= PROJECT["project"]["optional-dependencies"].keys()
    assert [each for each in LOCKS if each not in ("base", "build")] == sorted(EXTRAS)


@pytest.mark.parametrize("lock", LOCKS)
def test_every_file_of_every_package_has_a_digest(lock: str) -> None:
    found = list(read(lock))
    assert found
    for each in found:
        assert each.digests, each.name
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in each.digests), each.name


@pytest.mark.parametrize("lock", LOCKS)
def test_no_place_to_install_from_is_named(lock: str) -> None:
    assert "://" not in text_of(lock)
    assert not re.search(r"^--?(?!hash)|^-e|@", text_of(lock), re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_it_is_what_the_project_allows(lock: str) -> None:
    locked = here(*{"base", lock}) if lock != "build" else here("build")
    for requirement in filter(None, map(wanted, DECLARED[lock])):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not locked: {ADVICE}"
        assert requirement.specifier.contains(locked[name], prereleases=True), f"{name} is {locked[name]}: {ADVICE}"


@pytest.mark.parametrize("lock", LOCKS)
def test_extras_of_required_packages_are_in_the_lock(lock: str) -> None:
    # SQLAlchemy needs greenlet only with its extra asyncio.
    locked = here(*{"base", lock}) if lock != "build" else here("build")
    for requirement in filter(None, map(wanted, DECLARED[lock])):
        for extra in requirement.extras:
            try:
                texts = distribution(requirement.name).requires or []
            except PackageNotFoundError:
                continue
            for needed in map(Requirement, texts):
                if (
                    needed.marker
                    and not needed.marker.evaluate({"extra": ""})
                    and needed.marker.evaluate({"extra": extra})
                ):
                    assert canonicalize_name(needed.name) in locked, f"{requirement} needs {needed.name}: {ADVICE}"


def test_the_locks_are_one_solution() -> None:
    versions: dict[str, set[tuple[str, str]]] = {}
    for each in (each for lock in SHIPPED for each in read(lock)):
        versions.setdefault(each.name, set()).add((each.version, str(each.requirement.marker or "")))
    here_and_there = {name: {version for version, _ in found} for name, found in versions.items() if len(found) > 1}
    # Of one package there are several versions for several Pythons only.
    for name in here_and_there:
        assert all("python" in marker for _, marker in versions[name]), name


def test_nothing_is_missing_that_a_locked_package_needs() -> None:
    locked = here(*SHIPPED)
    compared = 0
    for name, version in locked.items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        if installed.version != version:
            continue
        compared += 1
        for requirement in filter(None, map(wanted, installed.requires or [])):
            needed = canonicalize_name(requirement.name)
            assert needed in locked, f"{name} needs {needed}"
            assert requirement.specifier.contains(locked[needed], prereleases=True), f"{name} needs {requirement}"
    assert compared


def test_torch_is_the_one_that_is_wanted_and_brings_no_siblings() -> None:
    assert here("torch")["torch"] == "2.13.0"
    assert not {"torchvision", "torchaudio", "ultralytics"} & here(*LOCKS).keys()


def test_what_installs_takes_nothing_but_what_is_locked() -> None:
    script = (ROOT / "deploy" / "install.sh").read_text()
    locked = script.partition("else\n")[2].partition("\nfi\n")[0].replace("\\\n", "")
    installing = [line for line in locked.splitlines() if re.search(r"\b(install|wheel) ", line) and "pip" in line]
    assert len(installing) == 4
    for line in installing:
        assert "--require-hashes" in line or "--no-index" in line or "--no-build-isolation" in line, line
        assert "--no-deps" in line, line
