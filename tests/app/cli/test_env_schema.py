"""The schema of the environment variables agrees with the command line."""

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
VARIABLES = {name: schema for name, schema in PROPERTIES.items() if "$ref" not in schema}
_STEP = {"integer": 1, "number": 0.001}
COMMAND = App()
COMMAND.default(serve)


def read(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return what `charioteer serve` reads from one variable, or None for its default."""
    for variable in PROPERTIES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, value)
    _, bound, _ = COMMAND.parse_args([], exit_on_error=False, print_error=False)
    for options in bound.arguments.values():
        defaults = asdict(type(options)())
        for field, parsed in asdict(options).items():
            if parsed != defaults[field]:
                return parsed
    return None


def bound_cases() -> list[tuple[str, str, bool]]:
    """Return values on both sides of every bound."""
    cases: list[tuple[str, str, bool]] = []
    for name, schema in VARIABLES.items():
        step = _STEP.get(schema["type"], 0)
        for keyword, sign in (("minimum", -1), ("maximum", 1)):
            if keyword in schema:
                cases += [(name, str(schema[keyword]), True), (name, str(schema[keyword] + sign * step), False)]
        if "exclusiveMinimum" in schema:
            cases += [
                (name, str(schema["exclusiveMinimum"] + step), True),
                (name, str(schema["exclusiveMinimum"]), False),
            ]
        for value in schema.get("enum", []):
            cases += [(name, str(value), True), (name, f"{value}!", False)]
    return cases


def test_schema_is_valid_against_its_draft() -> None:
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert jsonschema_rs.meta.is_valid(SCHEMA)


def test_every_variable_has_a_description_and_a_type() -> None:
    assert [name for name, schema in VARIABLES.items() if not schema["description"].endswith(".")] == []
    assert {schema["type"] for schema in VARIABLES.values()} == {"string", "integer", "number", "boolean"}


def test_defaults_match_the_schema() -> None:
    defaults = {name: schema["default"] for name, schema in VARIABLES.items() if "default" in schema}
    assert defaults["CHARIOTEER_HTTP_PORT"] == 8080
    assert jsonschema_rs.is_valid(SCHEMA, defaults)


def test_aliases_refer_to_their_variable() -> None:
    aliases = {
        name: schema["$ref"].removeprefix("#/properties/") for name, schema in PROPERTIES.items() if "$ref" in schema
    }
    listed = {other: name for name, schema in VARIABLES.items() for other in schema.get("x-aliases", [])}
    assert aliases == listed
    assert aliases["UVICORN_PORT"] == "CHARIOTEER_HTTP_PORT"
    assert not jsonschema_rs.is_valid(SCHEMA, {"UVICORN_PORT": 65536})


@pytest.mark.parametrize(("name", "value", "accepted"), bound_cases())
def test_bounds_equal_those_of_the_command_line(
    name: str, value: str, accepted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    try:
        read(name, value, monkeypatch)
    except CycloptsError:
        assert not accepted
    else:
        assert accepted


@pytest.mark.parametrize("name", [name for name, schema in PROPERTIES.items() if schema.get("type") == "boolean"])
def test_boolean_variables_are_read(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for value in {True, False} - {PROPERTIES[name].get("default")}:
        assert read(name, str(value).lower(), monkeypatch) is value


@pytest.mark.parametrize(("name", "value"), [("UVICORN_PORT", 9000), ("PORT", 9000), ("CHARIOTEER_HTTP_PORT", 9000)])
def test_every_alias_of_a_variable_is_read(name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(name, str(value), monkeypatch) == value


@pytest.mark.slow
def test_command_prints_the_schema() -> None:
    completed = subprocess.run([sys.executable, "-m", "app", "env-schema"], cwd=ROOT, capture_output=True, text=True)
    assert json.loads(completed.stdout) == json.loads(json.dumps(SCHEMA))
