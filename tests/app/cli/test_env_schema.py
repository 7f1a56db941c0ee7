"""The schema of the environment says what the command line does."""

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

import jsonschema_rs
import pytest
from cyclopts import App, CycloptsError

from app.cli.env_schema import environment_schema
from app.cli.serve import serve
from tests.support.server_process import ROOT

SCHEMA = environment_schema()
PROPERTIES: dict[str, dict[str, Any]] = SCHEMA["properties"]
VARIABLES = {name: each for name, each in PROPERTIES.items() if "$ref" not in each}
_STEP = {"integer": 1, "number": 0.001}


def read(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What `charioteer serve` makes of one variable; None when that is its default."""
    for each in PROPERTIES:
        monkeypatch.delenv(each, raising=False)
    monkeypatch.setenv(name, value)
    command = App()
    command.default(serve)
    _, bound, _ = command.parse_args([], exit_on_error=False, print_error=False)
    for options in bound.arguments.values():
        defaults = asdict(type(options)())
        for field, found in asdict(options).items():
            if found != defaults[field]:
                return found
    return None


def limits() -> list[tuple[str, str, bool]]:
    """Values on either side of every bound."""
    found: list[tuple[str, str, bool]] = []
    for name, each in VARIABLES.items():
        step = _STEP.get(each["type"], 0)
        for keyword, sign in (("minimum", -1), ("maximum", 1)):
            if keyword in each:
                found += [(name, str(each[keyword]), True), (name, str(each[keyword] + sign * step), False)]
        if "exclusiveMinimum" in each:
            found += [(name, str(each["exclusiveMinimum"] + step), True), (name, str(each["exclusiveMinimum"]), False)]
        for value in each.get("enum", []):
            found += [(name, str(value), True), (name, f"{value}!", False)]
    return found


def test_it_is_a_schema_of_the_draft_it_names() -> None:
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert jsonschema_rs.meta.is_valid(SCHEMA)


def test_every_variable_says_what_it_is() -> None:
    assert [name for name, each in VARIABLES.items() if not each["description"].endswith(".")] == []
    assert {each["type"] for each in VARIABLES.values()} == {"string", "integer", "number", "boolean"}


def test_defaults_are_of_their_own_schema() -> None:
    defaults = {name: each["default"] for name, each in VARIABLES.items() if "default" in each}
    assert defaults["CHARIOTEER_HTTP_PORT"] == 8080
    assert jsonschema_rs.is_valid(SCHEMA, defaults)


def test_other_names_lead_to_the_first() -> None:
    aliases = {name: each["$ref"].removeprefix("#/properties/") for name, each in PROPERTIES.items() if "$ref" in each}
    listed = {other: name for name, each in VARIABLES.items() for other in each.get("x-aliases", [])}
    assert aliases == listed
    assert aliases["UVICORN_PORT"] == "CHARIOTEER_HTTP_PORT"
    assert not jsonschema_rs.is_valid(SCHEMA, {"UVICORN_PORT": 65536})


@pytest.mark.parametrize(("name", "value", "taken"), limits())
def test_bounds_are_those_of_the_command_line(
    name: str, value: str, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        read(name, value, monkeypatch)
    except CycloptsError:
        assert not taken
    else:
        assert taken


@pytest.mark.parametrize("name", [name for name, each in PROPERTIES.items() if each.get("type") == "boolean"])
def test_switches_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in {True, False} - {PROPERTIES[name].get("default")}:
        assert read(name, str(value).lower(), monkeypatch) is value


@pytest.mark.parametrize(("name", "value"), [("UVICORN_PORT", 9000), ("PORT", 9000), ("CHARIOTEER_HTTP_PORT", 9000)])
def test_every_name_of_a_variable_is_read(name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(name, str(value), monkeypatch) == value


@pytest.mark.slow
def test_the_command_prints_it() -> None:
    done = subprocess.run([sys.executable, "-m", "app", "env-schema"], cwd=ROOT, capture_output=True, text=True)
    assert json.loads(done.stdout) == json.loads(json.dumps(SCHEMA))
