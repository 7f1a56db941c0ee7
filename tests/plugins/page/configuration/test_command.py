"""Options of `serve`: their help, and the sources of their values."""

import io
import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from cyclopts import App, CycloptsError, ValidationError
from rich.console import Console

from app.core.cli import command_line
from app.core.cli.serve import command, serve, unknown_variables
from app.core.plugins import registry
from app.core.settings.network import ListeningSettings
from app.core.settings.server import SettingsError
from app.plugins.page.configuration.command import config, environment_schema
from tests.support.command_line import charioteer

GROUPS = ("Models", "Network", "Access", "TLS", "Limits", "Recording", "Drift", "Page", "Logging")


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """Return value, source and variables of each option in the printed table."""
    lines = [line.strip("│").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return {option.strip(): [cell.strip() for cell in cells] for option, *cells in lines}


def test_help_of_serve_shows_common_options_in_groups() -> None:
    written = io.StringIO()
    command_line().help_print(("serve",), console=Console(file=written, width=80))
    text = written.getvalue()
    positions = [text.index(f"─ {group} ─") for group in GROUPS]
    assert positions == sorted(positions)
    assert "--port PORT" in text
    assert "--max-pixels INT" not in text
    assert "env var" not in text
    assert len(text.splitlines()) < 100


def test_config_with_nothing_set_says_so(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in environment_schema()["properties"]:
        monkeypatch.delenv(variable, raising=False)
    config()
    assert capsys.readouterr().out == (
        "No option of `charioteer serve` is set, so all have their defaults; --all shows them.\n"
    )


def test_help_all_shows_every_option() -> None:
    text = charioteer("serve", "--help-all").stdout
    names = [f"--{name.replace('_', '-')}" for name in registry().settings_class.__dataclass_fields__]
    assert [name for name in names if name not in text] == []


@pytest.mark.parametrize(
    ("options", "environment", "file", "expected"),
    [
        (["--port", "1"], "2", "port = 3", ["1", "command line"]),
        ([], "2", "port = 3", ["2", "CHARIOTEER_HTTP_PORT"]),
        ([], None, "port = 3", ["3", "c.toml"]),
        ([], None, "max_pixels = 3", ["8080", "default"]),
    ],
)
def test_option_overrides_environment_which_overrides_file_which_overrides_default(
    options: list[str], environment: str | None, file: str, expected: list[str],
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text(file)
    if environment:
        monkeypatch.setenv("CHARIOTEER_HTTP_PORT", environment)
    config("--config", "c.toml", *options, everything=True)
    value, source, variables = rows(capsys)["--port"]
    assert [value, source] == expected
    assert variables == "CHARIOTEER_HTTP_PORT, PORT, UVICORN_PORT"


def test_serve_reads_the_file_that_the_environment_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text('host = "127.0.0.2"\ngrpc-port = 9\nallow-code = true')
    monkeypatch.setenv("CHARIOTEER_CONFIG", str(tmp_path / "c.toml"))
    _, bound, _ = command.parse_args(["--port", "7"])
    assert bound.arguments["network"] == ListeningSettings(host="127.0.0.2", port=7, grpc_port=9)
    assert bound.arguments["models"].allow_code


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("charot-protocol = 'x'", "Did you mean --chariot-protocol"),
        ("port = 'x'", "unable to convert"),
        ("port = 70000", "<= 65535"),
    ],
)
def test_bad_file_is_rejected(content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "c.toml").write_text(content)
    with pytest.raises(SystemExit):
        command.parse_args(["--config", str(tmp_path / "c.toml")])
    assert message in " ".join(capsys.readouterr().err.replace("│", "").split())


@pytest.mark.parametrize(
    ("words", "value"),
    [
        ("serve --request-timeout", "inf"),
        ("drift check baseline images --alpha", "1e999"),
        ("inferences store --min-score", "nan"),
    ],
)
def test_number_that_is_not_finite_is_rejected(words: str, value: str) -> None:
    text = " ".join(charioteer(*words.split(), value).stderr.replace("│", "").split())
    assert f'Invalid value "{float(value)}" for {words.split()[-1]}. Expected a finite number' in text


def test_fraction_for_a_whole_number_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARIOTEER_WORKERS", "2.0")
    for words in (["--port", "80.5"], ["--max-waiting", "0.9"], ["--burst", "1.5"]):
        with pytest.raises(ValidationError, match="Expected a whole number"):
            command.parse_args(words, exit_on_error=False, print_error=False)
    _, bound, _ = command.parse_args([], exit_on_error=False, print_error=False)
    assert bound.arguments["operation"].workers == 2


def test_number_in_the_environment_or_a_file_is_finite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "c.toml").write_text("request-timeout = inf")
    with pytest.raises(ValidationError, match="Expected a finite number"):
        command.parse_args(["--config", str(tmp_path / "c.toml")], exit_on_error=False, print_error=False)
    monkeypatch.setenv("CHARIOTEER_REQUEST_TIMEOUT", "inf")
    with pytest.raises(ValidationError, match="Expected a finite number"):
        command.parse_args([], exit_on_error=False, print_error=False)


def test_empty_variable_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("c.toml").write_text("record-images = 'images'")
    for variable in environment_schema()["properties"]:
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("MODEL_PATH", "model.onnx")
    config("--config", "c.toml")
    sources = {option: cells[:2] for option, cells in rows(capsys).items() if option != "--config"}
    assert sources == {"--model": ["model.onnx", "MODEL_PATH"], "--record-images": ["images", "c.toml"]}


def test_empty_path_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["--model-repository", ""], ["--tls-cert="], [""]):
        with pytest.raises(ValidationError, match=r"Expected a path; `\.` is the current folder"):
            command.parse_args(words, exit_on_error=False, print_error=False)
    monkeypatch.setenv("CHARIOTEER_API_KEYS", "")
    completed = charioteer("keys", "list")
    assert completed.stderr == "charioteer: --file is missing; `charioteer keys list --help` describes it\n"


def test_config_reports_an_invalid_option_in_one_line() -> None:
    completed = charioteer("config", "--port", "x")
    assert completed.returncode == 2
    assert completed.stderr == 'charioteer: Invalid value for --port: unable to convert "x" into int\n'


@pytest.mark.parametrize(
    ("name", "reason"), [("c.toml", "Invalid value .*"), ("nowhere.toml", "No"), (".", "Is a"), ("pipe", "it is not")]
)
def test_file_that_cannot_be_read_is_rejected_with_its_option(name: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / name
    (tmp_path / "c.toml").write_text("port = [")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(SettingsError, match=f"--config: {path} cannot be read: {reason}.*; name a TOML file"):
        command.parse_args(["--config", str(path)])


def test_invalid_network_of_trusted_proxies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORWARDED_ALLOW_IPS", "192.0.2.1, 10.0.0.1/8")
    with pytest.raises(SettingsError, match=r"FORWARDED_ALLOW_IPS: Expected .*: 10\.0\.0\.1/8 has host bits set"):
        serve()


def test_passwords_and_tokens_in_urls_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    urls = {
        "--record": "postgresql://user:p/word@host/database",
        "--otlp-endpoint": "http://user:word@host",
    }
    config(*(word for pair in urls.items() for word in pair))
    shown = rows(capsys)
    assert [shown[name][0] for name in urls] == ["postgresql://...", "http://..."]


def test_unknown_variable_has_nearest_name(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("CHARIOTEER_MAX_PIXEL", "9")
    monkeypatch.setenv("CHARIOTEER_ZZZ", "9")
    # Kubernetes sets these for Services.
    monkeypatch.setenv("CHARIOTEER_PORT", "tcp://10.0.0.1:8080")
    monkeypatch.setenv("CHARIOTEER_PORT_8080_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("CHARIOTEER_SERVICE_HOST", "10.0.0.1")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert found == [("CHARIOTEER_MAX_PIXEL", "did you mean CHARIOTEER_MAX_PIXELS?"), ("CHARIOTEER_ZZZ", None)]
    config()
    assert "did you mean CHARIOTEER_MAX_PIXELS?" in capsys.readouterr().out
    monkeypatch.setenv("CHARIOTEER_PORT", "8080")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert ("CHARIOTEER_PORT", "did you mean CHARIOTEER_HTTP_PORT?") in found


def test_help_of_a_command_has_its_exit_statuses() -> None:
    assert "Exits with 0" in charioteer("conform", "--help").stdout


def test_completion_of_the_shell_knows_commands_and_options() -> None:
    script = command_line().generate_completion(prog_name="charioteer", shell="bash")
    assert all(word in script for word in ("env-schema", "drift", "--model-repository"))


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
    cases: dict[tuple[str, str, float], list[tuple[str, str, bool]]] = {}
    choices: list[tuple[str, str, bool]] = []
    for name, schema in VARIABLES.items():
        kind, step = schema["type"], _STEP.get(schema["type"], 0)
        for keyword, sign, limit in (("minimum", -1, 0), ("maximum", 1, 0), ("exclusiveMinimum", -1, 1)):
            if keyword in schema:
                inside, outside = schema[keyword] - sign * limit * step, schema[keyword] + sign * (1 - limit) * step
                cases[kind, keyword, schema[keyword]] = [(name, str(inside), True), (name, str(outside), False)]
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
