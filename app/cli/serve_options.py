"""Options of ``charioteer serve``: where their values come from."""

import difflib
import os
import re
from collections.abc import Iterator

from cyclopts import App, ArgumentCollection
from cyclopts.config import Toml

from app.settings.environment import MODELS, environment

_PREFIX = "CHARIOTEER_"
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_")
_SERVICE_ADDRESS = ("tcp://", "udp://", "sctp://")


CONFIG = environment(
    "CHARIOTEER_CONFIG", show=True, group=MODELS, help="File (TOML) with values of options, such as port = 8080."
)
"""The option `--config`."""


def read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill options that neither the command line nor the environment sets from the TOML file of `--config`."""
    argument = arguments.get("--config", None)
    if argument and (tokens := argument.tokens):
        path = tokens[-1].value
        Toml(path, must_exist=True, use_commands_as_keys=False, source=path)(app, commands, arguments)


def unknown_variables(arguments: ArgumentCollection) -> Iterator[tuple[str, str | None]]:
    """Yield each environment variable with our prefix that no option reads, and the most similar known name."""
    names = {name for argument in arguments for name in argument.parameter.env_var or ()}
    known = {name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)}
    for variable, value in sorted(os.environ.items()):
        name = variable.removeprefix(_PREFIX)
        # Kubernetes sets variables with the addresses of a Service called charioteer.
        is_service = _SERVICE_LINK.search(variable) or value.startswith(_SERVICE_ADDRESS)
        if variable.startswith(_PREFIX) and name not in known and not is_service:
            nearest = difflib.get_close_matches(name, known, n=1)
            yield variable, f"{_PREFIX}{nearest[0]}" if nearest else None
