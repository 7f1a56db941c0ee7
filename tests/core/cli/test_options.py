"""Options of `serve`: their help, and the sources of their values."""

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cyclopts import ValidationError
from rich.console import Console

from app.core.cli import command_line
from app.core.cli.serve import command, serve, unknown_variables
from app.core.plugins import registry
from app.core.settings.network import ListeningSettings
from app.core.settings.server import SettingsError
from tests.support.command_line import charioteer

GROUPS = ("Models", "Network", "Access", "TLS", "Limits", "Recording", "Drift", "Page", "Logging")


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


def test_list_of_commands_has_groups_and_an_example() -> None:
    text = charioteer("--help").stdout
    words = ("charioteer serve --demo", "─ Serve ─", "─ Model ─", "─ Answers ─", "─ Others ─", " config ", " manifest ")
    positions = [text.index(word) for word in words]
    assert positions == sorted(positions)


@pytest.mark.parametrize(
    ("name", "rare"), [("serve", "--jwks"), ("evaluate", "--split"), ("drift check", "--until"), ("run", "--ca")]
)
def test_help_names_the_way_to_rare_options(name: str, rare: str) -> None:
    text = charioteer(*name.split(), "--help").stdout
    assert f"More options: charioteer {name} --help-all." in text
    assert f"{rare} " not in text


def test_help_without_rare_options_names_no_other_help() -> None:
    assert "--help-all" not in charioteer("keys", "add", "--help").stdout


@pytest.mark.parametrize("name", ["serve", "drift check"])
def test_help_all_shows_every_option(name: str) -> None:
    # Which options are rare is read at the start of a process.
    command = [sys.executable, "-m", "app", *name.split(), "--help-all"]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    options = registry().settings if name == "serve" else registry().model_options
    names = [f"--{field.replace('_', '-')}" for field in options.__dataclass_fields__]
    assert [option for option in names if option not in text] == []
    assert "More options" not in text


@pytest.mark.parametrize(
    ("options", "variable", "file", "port"),
    [(["--port", "1"], "2", "port = 3", 1), ([], "2", "port = 3", 2), ([], "", "port = 3", 3), ([], "", "", 8080)],
)
def test_option_overrides_environment_which_overrides_file_which_overrides_default(
    options: list[str], variable: str, file: str, port: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "c.toml").write_text(file)
    monkeypatch.setenv("CHARIOTEER_HTTP_PORT", variable)
    _, bound, _ = command.parse_args(["--config", str(tmp_path / "c.toml"), *options])
    assert bound.arguments.get("network", ListeningSettings()).port == port


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


def test_empty_variable_is_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("CHARIOTEER_MODEL", "CHARIOTEER_GRPC", "CHARIOTEER_MAX_PIXELS"):
        monkeypatch.setenv(variable, "")
    monkeypatch.setenv("MODEL_PATH", "model.onnx")
    _, bound, _ = command.parse_args([])
    assert bound.arguments == {"models": registry().model_options(model=Path("model.onnx"))}


def test_empty_path_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    for words in (["--model-repository", ""], ["--tls-cert="], [""]):
        with pytest.raises(ValidationError, match=r"Expected a path; `\.` is the current folder"):
            command.parse_args(words, exit_on_error=False, print_error=False)
    monkeypatch.setenv("CHARIOTEER_API_KEYS", "")
    completed = charioteer("keys", "list")
    assert completed.stderr == "charioteer: --file is missing; `charioteer keys list --help` describes it\n"


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


def test_unknown_variable_has_nearest_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARIOTEER_MAX_PIXEL", "9")
    monkeypatch.setenv("CHARIOTEER_ZZZ", "9")
    # Kubernetes sets these for Services.
    monkeypatch.setenv("CHARIOTEER_PORT", "tcp://10.0.0.1:8080")
    monkeypatch.setenv("CHARIOTEER_PORT_8080_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("CHARIOTEER_SERVICE_HOST", "10.0.0.1")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert found == [("CHARIOTEER_MAX_PIXEL", "did you mean CHARIOTEER_MAX_PIXELS?"), ("CHARIOTEER_ZZZ", None)]
    monkeypatch.setenv("CHARIOTEER_PORT", "8080")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert ("CHARIOTEER_PORT", "did you mean CHARIOTEER_HTTP_PORT?") in found


def test_help_of_a_command_has_its_exit_statuses() -> None:
    assert "Exits with 0" in charioteer("conform", "--help").stdout


def test_completion_of_the_shell_knows_commands_and_options() -> None:
    script = command_line().generate_completion(prog_name="charioteer", shell="bash")
    assert all(word in script for word in ("env-schema", "drift", "--model-repository"))
