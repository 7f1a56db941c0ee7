"""The image says what the server is; what it installs and runs is tried in test_image.py."""

import re

import pytest

from app.cli.env_schema import environment_schema
from tests.deploy.containerfile import FILE, environment, every, only, sources, stages
from tests.support.server_process import ROOT

BUILD, IMAGE = stages()
PROPERTIES = environment_schema()["properties"]


def names_of(first: str) -> tuple[str, ...]:
    return (first, *PROPERTIES[first].get("x-aliases", ()))


def test_it_begins_with_an_official_image_of_a_named_version() -> None:
    for stage in (BUILD, IMAGE):
        assert re.fullmatch(r"python:\$\{PYTHON\}-slim( AS build)?", only(stage, "FROM"))
    assert re.search(r"^ARG PYTHON=3\.1[1-9]$", FILE.read_text(), re.MULTILINE)


def test_nothing_runs_or_is_fetched_in_the_image_itself() -> None:
    assert every(IMAGE, "RUN") == []
    assert every(BUILD, "ADD") + every(IMAGE, "ADD") == []


def test_it_runs_as_a_user_by_number() -> None:
    assert int(only(IMAGE, "USER")) > 0


def test_the_server_knows_every_variable_that_is_set() -> None:
    names = [name for name in environment(IMAGE) if not name.startswith(("PYTHON", "ORT_"))]
    assert names
    assert [name for name in names if name not in PROPERTIES] == []


@pytest.mark.parametrize("name", ["CHARIOTEER_HTTP_PORT", "CHARIOTEER_GRPC_PORT", "CHARIOTEER_TENSORFLOW_SERVING_PORT"])
def test_it_exposes_the_ports_of_the_server(name: str) -> None:
    assert str(PROPERTIES[name]["default"]) in only(IMAGE, "EXPOSE").split()


def test_the_health_check_reads_every_name_of_the_port() -> None:
    script = (ROOT / "deploy" / "healthcheck.py").read_text()
    assert tuple(re.findall(r'"([A-Z_]*PORT)"', script)) == names_of("CHARIOTEER_HTTP_PORT")
    assert f'"{PROPERTIES["CHARIOTEER_HTTP_PORT"]["default"]}"' in script


def test_a_build_sees_what_it_copies_and_nothing_else() -> None:
    lines = FILE.with_name("Containerfile.dockerignore").read_text().splitlines()
    assert "*" in lines
    copied = [*sources(BUILD), *sources(IMAGE)]
    assert sorted(copied) == sorted(line[1:] for line in lines if line.startswith("!"))
    assert [source for source in copied if not (ROOT / source).exists()] == []
