"""Options that plugins add to commands of others."""

from dataclasses import dataclass
from typing import Any

import pytest
from cyclopts import Parameter

from app.core.hooks import Plugin, Ref
from app.core.plugin_loading import find
from app.core.plugins import Registry
from tests.support.command_line import output_of


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Added:
    added: str = "default"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Repeated:
    model_dir: str = "default"


def extend(monkeypatch: pytest.MonkeyPatch, path: str, kind: type) -> None:
    """Let a plugin add options to the command at `path`."""
    extended = Plugin(api=1, name="z", summary="Some.", command_options={path: kind})
    plugins = Registry([*find(()), extended])
    # Adding options changes the command itself, which other tests run.
    keys_add: Any = Ref[Any](plugins.commands["keys"].run).load()["add"]
    monkeypatch.setattr(keys_add, "default_command", keys_add.default_command)
    for module in ("app.core.cli", "app.core.cli.command_options"):
        monkeypatch.setattr(f"{module}.registry", lambda: plugins)


@pytest.mark.parametrize("path", ["models", "keys add"])
def test_added_option_is_shown_in_the_help_of_its_command(monkeypatch: pytest.MonkeyPatch, path: str) -> None:
    extend(monkeypatch, path, Added)
    assert "--added" in output_of(*path.split(), "--help")


@pytest.mark.parametrize(
    ("path", "kind", "message"),
    [
        ("keys", Added, "there is no command keys with options"),
        ("keys lose", Added, "there is no command keys lose with options"),
        ("models", Repeated, "the command has the option --model-dir already"),
    ],
)
def test_option_that_cannot_be_added_is_an_error(
    monkeypatch: pytest.MonkeyPatch, path: str, kind: type, message: str
) -> None:
    extend(monkeypatch, path, kind)
    assert message in output_of(*path.split(), status=1)
