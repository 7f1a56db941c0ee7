"""Read the lock files in deploy/requirements."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.support.servers.server_process import ROOT

FOLDER = ROOT / "deploy" / "requirements"
LOCKS = sorted(path.stem for path in FOLDER.glob("*.txt"))
RUNTIME_LOCKS = [lock for lock in LOCKS if lock != "build"]


class Locked(NamedTuple):
    """One package of a lock."""

    name: str
    version: str
    requirement: Requirement
    digests: tuple[str, ...]

    @property
    def applies_here(self) -> bool:
        return self.requirement.marker is None or self.requirement.marker.evaluate()


def text_of(lock: str) -> str:
    return (FOLDER / f"{lock}.txt").read_text()


def read(lock: str) -> Iterator[Locked]:
    for block in re.findall(r"^\S.*\n(?:\s+.*\n)*", text_of(lock), re.MULTILINE):
        if block.startswith("#"):
            continue
        first, *rest = block.replace("\\\n", "\n").splitlines()
        requirement = Requirement(first.strip())
        (specifier,) = requirement.specifier
        assert specifier.operator == "==", first
        digests = tuple(line.strip().removeprefix("--hash=sha256:") for line in rest)
        yield Locked(canonicalize_name(requirement.name), specifier.version, requirement, digests)


def installed_versions(*locks: str) -> Mapping[str, str]:
    """Return the version of each package that these locks install on this machine."""
    return {package.name: package.version for lock in locks for package in read(lock) if package.applies_here}


def scripts() -> list[Path]:
    return [ROOT / "deploy" / "install.sh", ROOT / "deploy" / "Containerfile"]
