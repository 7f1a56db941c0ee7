"""Options that plugins add to commands of others."""

import subprocess
import sys

import pytest

from tests.support.servers.server_process import ROOT

PROGRAM = """
import sys
from dataclasses import dataclass
from cyclopts import Parameter
from app.core import plugins
from app.core.hooks import Plugin
from app.core.settings.command_options import command_options

@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Added:
    {option}: str = "default"

path = {path!r}
extended = Plugin(api=1, name="z", summary="Some.", command_options={{path: Added}})
plugins.find, found = lambda _: [*found, extended], plugins.find(())
plugins.registry.cache_clear()
from app.core.cli import main
main()
print(command_options(Added))
"""


def run(path: str, *arguments: str, option: str = "added") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(path=path, option=option)
    command = [sys.executable, "-c", program, *path.split(), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("path", ["models", "keys add"])
def test_added_option_is_shown_in_the_help_of_its_command(path: str) -> None:
    assert "--added" in run(path, "--help").stdout


@pytest.mark.parametrize(
    ("path", "option", "message"),
    [
        ("keys", "added", "there is no command keys with options"),
        ("keys lose", "added", "there is no command keys lose with options"),
        ("models", "model_dir", "the command has the option --model-dir already"),
    ],
)
def test_option_that_cannot_be_added_is_an_error(path: str, option: str, message: str) -> None:
    assert message in run(path, option=option).stderr
