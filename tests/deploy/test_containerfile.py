"""Check the instructions of the Containerfile; test_image.py runs what it installs."""

import re
import socket
import subprocess
import sys
import tomllib
from contextlib import closing
from pathlib import PurePosixPath

from app import __version__
from app.plugins.page.configuration import environment_schema
from tests.deploy.containerfile import FILE, arguments_of, copied_paths, environment, only_argument, stages
from tests.support.servers.server_process import ROOT

BUILD, IMAGE = stages()
PROPERTIES = environment_schema()["properties"]


def variable_names(name: str) -> tuple[str, ...]:
    return (name, *PROPERTIES[name].get("x-aliases", ()))


def test_stages_use_official_slim_image_by_its_digest() -> None:
    assert [only_argument(stage, "FROM").removesuffix(" AS build") for stage in (BUILD, IMAGE)] == ["${BASE}"] * 2
    assert re.search(r"^ARG BASE=python:3\.1[1-9]-slim-\w+@sha256:[0-9a-f]{64}$", FILE.read_text(), re.MULTILINE)


def test_final_stage_has_the_version_and_a_user_and_no_run_and_no_add() -> None:
    assert arguments_of(IMAGE, "RUN") == []
    assert arguments_of(BUILD, "ADD") + arguments_of(IMAGE, "ADD") == []
    assert f"VERSION={__version__}" in arguments_of(IMAGE, "ARG")
    assert int(only_argument(IMAGE, "USER")) > 0


def test_image_sets_only_known_environment_variables() -> None:
    names = [name for name in environment(IMAGE) if not name.startswith(("PYTHON", "ORT_"))]
    assert names
    assert [name for name in names if name not in PROPERTIES] == []


def test_image_exposes_the_default_port_of_every_protocol() -> None:
    names = [name for name in PROPERTIES if re.fullmatch(r"CHARIOTEER_\w+_PORT", name)]
    assert len(names) == 4
    assert sorted(only_argument(IMAGE, "EXPOSE").split()) == sorted(str(PROPERTIES[name]["default"]) for name in names)


def test_health_check_reads_all_port_variables() -> None:
    script = (ROOT / "deploy" / "healthcheck.py").read_text()
    assert tuple(re.findall(r'"([A-Z_]*PORT)"', script)) == variable_names("CHARIOTEER_HTTP_PORT")
    assert f'"{PROPERTIES["CHARIOTEER_HTTP_PORT"]["default"]}"' in script


def test_health_check_uses_no_proxy_and_skips_empty_variables() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        empty = {"CHARIOTEER_HTTP_PORT": "", "CHARIOTEER_TLS_CERT": "", "CHARIOTEER_TLS_CLIENT_CA": ""}
        variables = {"PORT": str(server.getsockname()[1]), "HTTP_PROXY": "http://127.0.0.1:1", **empty}
        command = [sys.executable, ROOT / "deploy" / "healthcheck.py"]
        with subprocess.Popen(command, env=variables, stderr=subprocess.PIPE) as check:
            server.settimeout(10)
            connection, _ = server.accept()
            with connection:
                connection.recv(1000)
                connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
            assert check.wait(10) == 0


def test_build_has_all_files_that_go_into_the_wheel() -> None:
    wheel = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]
    copied = list(map(PurePosixPath, copied_paths(BUILD)))
    for source in map(PurePosixPath, (*wheel["packages"], *wheel["force-include"])):
        assert any(source.is_relative_to(path) for path in copied), source


def test_dockerignore_allows_exactly_the_copied_paths() -> None:
    lines = FILE.with_name("Containerfile.dockerignore").read_text().splitlines()
    assert "*" in lines
    copied = [*copied_paths(BUILD), *copied_paths(IMAGE)]
    assert sorted(copied) == sorted(line[1:] for line in lines if line.startswith("!"))
    assert [source for source in copied if not (ROOT / source).exists()] == []
