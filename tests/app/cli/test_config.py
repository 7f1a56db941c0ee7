"""Options of `serve`: their help, and the sources of their values."""

import io
from pathlib import Path

import pytest
from cyclopts import App
from rich.console import Console

from app.cli import cli
from app.cli.config import config
from app.cli.serve import command
from app.cli.serve_options import unknown_variables
from app.settings.network import ListeningSettings
from app.settings.server import ServerSettings
from tests.support.command_line import charioteer

GROUPS = ("Models", "Network", "Access", "TLS", "Limits", "Recording", "Drift", "Page", "Logging")


def help_text(app: App, *words: str) -> str:
    written = io.StringIO()
    app.help_print(words, console=Console(file=written, width=80))
    return written.getvalue()


def rows(capsys: pytest.CaptureFixture[str]) -> dict[str, list[str]]:
    """Return value, source and variables of each option in the printed table."""
    lines = [line.strip("│").split("│") for line in capsys.readouterr().out.splitlines() if line.startswith("│")]
    return {option.strip(): [cell.strip() for cell in cells] for option, *cells in lines}


def test_help_of_serve_shows_common_options_in_groups() -> None:
    text = help_text(cli, "serve")
    assert [text.index(f"─ {group} ─") for group in GROUPS] == sorted(text.index(f"─ {group} ─") for group in GROUPS)
    assert "--port PORT" in text
    assert "--max-pixels INT" not in text
    assert "env var" not in text
    assert len(text.splitlines()) < 100


def test_help_all_shows_every_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli(["serve", "--help-all"])
    text = capsys.readouterr().out
    names = [f"--{name.replace('_', '-')}" for name in ServerSettings.__dataclass_fields__]
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
    options: list[str],
    environment: str | None,
    file: str,
    expected: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
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
        ("port = [", "TOMLDecodeError"),
    ],
)
def test_invalid_file_is_rejected(
    content: str, message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "c.toml").write_text(content)
    with pytest.raises(SystemExit):
        command.parse_args(["--config", str(tmp_path / "c.toml")])
    assert message in " ".join(capsys.readouterr().err.replace("│", "").split())


def test_missing_file_is_rejected() -> None:
    with pytest.raises(FileNotFoundError, match=r"nowhere\.toml"):
        command.parse_args(["--config", "nowhere.toml"])


def test_passwords_and_tokens_in_urls_are_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    config("--record", "postgresql://user:p/word@host/database", "--drift-webhook", "https://hooks.example/token")
    shown = rows(capsys)
    assert [shown[name][0] for name in ("--record", "--drift-webhook")] == ["postgresql://...", "https://..."]


def test_unknown_variables_have_the_nearest_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CHARIOTEER_MAX_PIXEL", "9")
    monkeypatch.setenv("CHARIOTEER_ZZZ", "9")
    # Kubernetes sets these for Services.
    monkeypatch.setenv("CHARIOTEER_PORT", "tcp://10.0.0.1:8080")
    monkeypatch.setenv("CHARIOTEER_PORT_8080_TCP_ADDR", "10.0.0.1")
    monkeypatch.setenv("CHARIOTEER_SERVICE_HOST", "10.0.0.1")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert found == [("CHARIOTEER_MAX_PIXEL", "CHARIOTEER_MAX_PIXELS"), ("CHARIOTEER_ZZZ", None)]
    config()
    assert "did you mean CHARIOTEER_MAX_PIXELS?" in capsys.readouterr().out


def test_variable_of_another_option_is_unknown_with_our_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CHARIOTEER_PORT", "8080")
    found = list(unknown_variables(command.assemble_argument_collection()))
    assert found == [("CHARIOTEER_PORT", "CHARIOTEER_HTTP_PORT")]


def test_help_of_a_command_has_its_exit_statuses() -> None:
    assert "Exits with 0" in charioteer("conform", "--help").stdout


def test_completion_of_the_shell_knows_commands_and_options() -> None:
    script = cli.generate_completion(prog_name="charioteer", shell="bash")
    assert all(word in script for word in ("env-schema", "drift", "--model-repository"))
