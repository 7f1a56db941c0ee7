"""The licences of what the locks install, against docs/supply_chain.md: a new one is a decision, not an accident.

Judged is what is installed here in the version that is locked; test_image.py does the same with all of an image.
"""

import re
from importlib.metadata import PackageNotFoundError, distribution

from deploy.sbom import component
from tests.deploy.licences import libraries, libraries_documented, other_licences_documented, others
from tests.deploy.locks import SHIPPED, here
from tests.support.server_process import ROOT

LOCKED = here(*SHIPPED)


def is_judged(name: str) -> bool:
    try:
        return distribution(name).version.partition("+")[0] == LOCKED[name]
    except PackageNotFoundError:
        return False


JUDGED = {name: component(distribution(name)) for name in LOCKED if is_judged(name)}


def test_every_licence_that_is_not_of_the_usual_ones_is_in_the_document() -> None:
    assert JUDGED
    found = other_licences_documented()
    assert others(JUDGED.values()) == {name: found[name] for name in found if name in JUDGED}


def test_no_package_is_in_the_document_that_is_not_locked() -> None:
    families = {name for name in other_licences_documented() if name.endswith("*")}
    assert other_licences_documented().keys() - families <= LOCKED.keys()
    for each in families:
        assert any(name.startswith(each.rstrip("*")) for name in LOCKED)


def test_what_is_never_installed_here_is_in_the_document() -> None:
    # Torch's packages for GPUs, which come with its build for them only.
    never = {name for name in LOCKED if re.match(r"(nvidia|cuda|triton)", name)}
    families = tuple(name.rstrip("*") for name in other_licences_documented())
    assert {name for name in never if not name.startswith(families)} <= {"triton"}


def test_the_libraries_within_wheels_are_in_the_document() -> None:
    base = here("base")
    found = libraries(each for name, each in JUDGED.items() if name in base)
    assert found == {name: names for name, names in libraries_documented().items() if name in JUDGED}


def test_opencv_is_asked_for_pictures_and_never_for_video() -> None:
    # So that FFmpeg and OpenSSL, which its wheel brings, are never given anything.
    for folder in ("app", "metadata", "tasks"):
        for path in (ROOT / folder).rglob("*.py"):
            assert not re.search(r"VideoCapture|VideoWriter|CAP_FFMPEG", path.read_text()), path
