"""The commands config and env-schema."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from cyclopts import App, CycloptsError

from app.core.cli.serve import serve
from app.plugins.page.configuration import config, environment_schema
from tests.support.command_line import charioteer


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """Return value, source and variables of each option in the printed table."""
    lines = [line.strip("│").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return {option.strip(): [cell.strip() for cell in cells] for option, *cells in lines}


def test_config_shows_set_options_with_their_sources_and_without_secrets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text("record-images = 'images'\nrecord = 'postgresql://user:p/word@host/database'")
    for variable in environment_schema()["properties"]:
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("MODEL_PATH", "model.onnx")
    config("--config", "c.toml", "--port", "1", "--otlp-endpoint", "http://user:word@host")
    sources = {option: cells[:2] for option, cells in rows(capsys).items() if option != "--config"}
    assert sources == {
        "--model": ["model.onnx", "MODEL_PATH"],
        "--port": ["1", "command line"],
        "--record": ["postgresql://...", "c.toml"],
        "--record-images": ["images", "c.toml"],
        "--otlp-endpoint": ["http://...", "command line"],
    }
    config(everything=True)
    assert rows(capsys)["--port"] == ["8080", "default", "CHARIOTEER_HTTP_PORT, PORT, UVICORN_PORT"]


def test_config_without_options_says_so_and_warns_of_unknown_variables(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for variable in environment_schema()["properties"]:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("CHARIOTEER_MAX_PIXEL", "9")
    config()
    printed = capsys.readouterr().out
    assert printed.startswith("No option of `charioteer serve` is set, so all have their defaults; --all shows them.")
    assert "did you mean CHARIOTEER_MAX_PIXELS?" in printed


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
    """Return values on both sides of bounds, of one variable for each kind of bound: all share the code."""
    cases: dict[tuple[str, str], list[tuple[str, str, bool]]] = {}
    choices: list[tuple[str, str, bool]] = []
    for name, schema in VARIABLES.items():
        kind, step = schema["type"], _STEP.get(schema["type"], 0)
        for keyword, sign, limit in (("minimum", -1, 0), ("maximum", 1, 0), ("exclusiveMinimum", -1, 1)):
            if keyword in schema:
                inside, outside = schema[keyword] - sign * limit * step, schema[keyword] + sign * (1 - limit) * step
                cases[kind, keyword] = [(name, str(inside), True), (name, str(outside), False)]
        choices = choices or [(name, f"{value}{end}", not end) for value in schema.get("enum", []) for end in ("", "!")]
    return [*choices, *(case for pair in cases.values() for case in pair)]


def test_schema_is_valid_and_describes_every_variable() -> None:
    assert SCHEMA["$schema"].endswith("2020-12/schema")
    assert jsonschema_rs.meta.is_valid(SCHEMA)
    assert [name for name, schema in VARIABLES.items() if not schema["description"].endswith(".")] == []
    assert {schema["type"] for schema in VARIABLES.values()} == {"string", "integer", "number", "boolean"}
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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *((name, 9000) for name in ("UVICORN_PORT", "PORT", "CHARIOTEER_HTTP_PORT")),
        *((name, True) for name in ("CHARIOTEER_GRPC", "CHARIOTEER_INSECURE", "CHARIOTEER_ALLOW_CODE")),
        ("CHARIOTEER_GRPC", False),
    ],
)
def test_every_name_of_a_variable_is_read(name: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    assert read(name, str(value).lower(), monkeypatch) == value


def test_command_prints_the_schema() -> None:
    assert json.loads(charioteer("env-schema").stdout) == json.loads(json.dumps(SCHEMA))
