"""Check the licence of Charioteer, and compare those of locked packages with docs/security.md#supply-chain.

A new licence needs a decision. Only packages that are installed here in the locked version are compared; test_image.py
compares all of an image.
"""

import hashlib
import re
import sys
import tomllib
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution

import pytest

from deploy.sbom import component, licence_of
from tests.deploy.containerfile import only_argument, stages
from tests.deploy.licences import documented_libraries, documented_licences, libraries, unusual_licences
from tests.deploy.locks import RUNTIME_LOCKS, installed_versions
from tests.support.servers.server_process import ROOT

LOCKED = installed_versions(*RUNTIME_LOCKS)
HOLDER = "Copyright 2026 The Charioteer authors"
APACHE_2 = "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30"
"""SHA-256 of the text that the Apache Software Foundation publishes."""


def test_licence_file_is_apache_2_with_own_copyright_line() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert text.count(HOLDER) == 1
    published = text.replace(HOLDER, "Copyright [yyyy] [name of copyright owner]")
    assert hashlib.sha256(published.encode()).hexdigest() == APACHE_2


def test_metadata_and_image_state_the_licence_and_no_address() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert f'licenses="{project["license"]}"' in only_argument(stages()[1], "LABEL")
    assert "urls" not in project
    assert "://" not in str(project)


def is_installed_as_locked(name: str) -> bool:
    try:
        return distribution(name).version.partition("+")[0] == LOCKED[name]
    except PackageNotFoundError:
        return False


@cache
def installed() -> set[str]:
    return set(filter(is_installed_as_locked, LOCKED))


def test_unusual_licences_are_documented() -> None:
    assert installed()
    documented = documented_licences()
    families = tuple(name.rstrip("*") for name in documented if name.endswith("*"))
    licences = ((name, licence_of(distribution(name))) for name in installed())
    found = unusual_licences({"name": name, "licenses": [licence] if licence else []} for name, licence in licences)
    assert {name: licences for name, licences in found.items() if not name.startswith(families)} == {
        name: documented[name] for name in documented if name in installed()
    }


def test_documented_packages_are_locked() -> None:
    families = {name for name in documented_licences() if name.endswith("*")}
    assert documented_licences().keys() - families <= LOCKED.keys()
    for family in families:
        assert any(name.startswith(family.rstrip("*")) for name in LOCKED)


def test_gpu_packages_are_documented() -> None:
    # Only the GPU build of torch installs these.
    never = {name for name in LOCKED if re.match(r"(nvidia|cuda|triton)", name)}
    families = tuple(name.rstrip("*") for name in documented_licences())
    assert {name for name in never if not name.startswith(families)} <= {"triton"}


@pytest.mark.skipif(sys.version_info[:2] != (3, 11), reason="the image has Python 3.11, whose wheels differ")
def test_libraries_in_wheels_are_documented() -> None:
    base = installed_versions("base").keys() & installed()
    actual = libraries(component(distribution(name)) for name in base)
    assert actual == {name: names for name, names in documented_libraries().items() if name in installed()}


def test_opencv_video_functions_are_not_used() -> None:
    # FFmpeg and OpenSSL in its wheel must never process data.
    for folder in ("app", "metadata", "tasks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"VideoCapture|VideoWriter|CAP_FFMPEG", path.read_text()), path
