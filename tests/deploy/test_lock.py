"""Check that the locks are complete and consistent and satisfy pyproject.toml; `make lock` writes them."""

import re
import tomllib
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, distribution

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from deploy.lock import EXTRAS
from tests.deploy.locks import LOCKS, RUNTIME_LOCKS, installed_versions, read, text_of
from tests.installed.environments import closure, requirements
from tests.support.servers.server_process import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
DECLARED: dict[str, list[str]] = {
    "base": PROJECT["project"]["dependencies"],
    "build": PROJECT["build-system"]["requires"],
    **PROJECT["project"]["optional-dependencies"],
}
WITHOUT_LOCK = {
    "bench", "check", "demo", "docs", "fixtures", "maite", "ray", "supply", "test", "test-slow", "timm",
}  # fmt: skip
ADVICE = "run `make lock`"


def applicable(texts: Iterable[str], extra: str = "") -> list[Requirement]:
    """Return the requirements that apply on this machine with an extra of the package that has them."""
    found = map(Requirement, texts)
    return [one for one in found if one.marker is None or one.marker.evaluate({"extra": extra})]


def test_every_image_extra_is_locked() -> None:
    assert {*EXTRAS} | WITHOUT_LOCK >= PROJECT["project"]["optional-dependencies"].keys()
    assert [lock for lock in LOCKS if lock not in ("base", "build")] == sorted(EXTRAS)


def requires(name: str) -> Sequence[str]:
    """Return the requirements of an installed package; none if it is not installed here."""
    try:
        return distribution(name).requires or ()
    except PackageNotFoundError:
        return ()


@pytest.mark.parametrize("lock", LOCKS)
def test_locked_packages_have_sha256_digests_and_no_address(lock: str) -> None:
    packages = list(read(lock))
    assert packages
    for package in packages:
        assert package.digests, package.name
        assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in package.digests), package.name
    assert not re.search(r"^--?(?!hash)|^-e|@|://", text_of(lock), re.MULTILINE)


@pytest.mark.parametrize("lock", LOCKS)
def test_locked_versions_satisfy_pyproject(lock: str) -> None:
    locked = installed_versions(*{"base", lock} if lock != "build" else {"build"})
    for requirement in applicable(DECLARED[lock]):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{name} is not locked: {ADVICE}"
        assert requirement.specifier.contains(locked[name], prereleases=True), f"{name} is {locked[name]}: {ADVICE}"
        # SQLAlchemy needs greenlet only with its extra asyncio.
        for needed in (needed for extra in requirement.extras for needed in applicable(requires(name), extra)):
            assert canonicalize_name(needed.name) in locked, f"{requirement} needs {needed.name}: {ADVICE}"


def test_locks_agree_on_one_version_per_package() -> None:
    versions: dict[str, set[tuple[str, str]]] = {}
    for package in (package for lock in RUNTIME_LOCKS for package in read(lock)):
        versions.setdefault(package.name, set()).add((package.version, str(package.requirement.marker or "")))
    several_versions = {name: {version for version, _ in pairs} for name, pairs in versions.items() if len(pairs) > 1}
    # A package may have several versions only for different Python versions.
    for name in several_versions:
        assert all("python" in marker for _, marker in versions[name]), name


def test_dependencies_of_locked_packages_are_locked() -> None:
    locked = installed_versions(*RUNTIME_LOCKS)
    compared = 0
    for name, version in locked.items():
        try:
            installed = distribution(name)
        except PackageNotFoundError:
            continue
        if installed.version != version:
            continue
        compared += 1
        for requirement in applicable(installed.requires or ()):
            needed = canonicalize_name(requirement.name)
            assert needed in locked, f"{name} needs {needed}"
            assert requirement.specifier.contains(locked[needed], prereleases=True), f"{name} needs {requirement}"
    assert compared


def test_torch_version_is_fixed_and_siblings_are_absent() -> None:
    assert installed_versions("torch")["torch"] == "2.13.0"
    assert not {"torchvision", "torchaudio", "ultralytics"} & installed_versions(*LOCKS).keys()


def test_install_script_installs_only_locked_packages() -> None:
    script = (ROOT / "deploy" / "install.sh").read_text()
    locked = script.partition("else\n")[2].partition("\nfi\n")[0].replace("\\\n", "")
    installing = [line for line in locked.splitlines() if re.search(r"\b(install|wheel) ", line) and "pip" in line]
    assert len(installing) == 4
    for line in installing:
        assert "--require-hashes" in line or "--no-index" in line or "--no-build-isolation" in line, line
        assert "--no-deps" in line, line


def test_slim_installation_leaves_out_exactly_what_only_transformers_needs() -> None:
    script = (ROOT / "deploy" / "install.sh").read_text()
    removed = script.rpartition("uninstall --quiet --yes")[2].partition("\nfi\n")[0]
    # torch needs transformers, and the environment of the quick tests has no openvino.
    texts = requirements(*(extra for extra in EXTRAS if extra not in ("torch", "openvino")))
    # Only models with text, which transformers reads, need these.
    needed = closure(text for text in texts if not text.startswith(("llguidance", "tokenizers", "transformers")))
    assert {*removed.replace("\\", "").split()} == closure(texts).keys() - needed.keys() - {"hf-xet"}
