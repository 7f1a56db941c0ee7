"""``charioteer serve``."""

import difflib
import faulthandler
import gc
import importlib
import ipaddress
import logging
import os
import re
import sys
import threading
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import fields, make_dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from cyclopts import App, ArgumentCollection, Parameter
from cyclopts.config import Toml

from app.core.cli import EXPECTED_ERRORS
from app.core.cli.model_options import MODEL_PATH, with_path
from app.core.engine.error_text import sentence_of
from app.core.plugins import registry
from app.core.removed import removed_advice
from app.core.settings.environment import HELP_FLAGS, MODELS, RARE, check_values, drop_empty_variables, environment
from app.core.settings.files import read_regular_file
from app.core.settings.model import ModelError
from app.core.settings.network import AccessSettings, DefaultPort, ListeningSettings, TransportSettings
from app.core.settings.server import LimitSettings, ModelOptions, OperationSettings, ServerSettings, SettingsError

_EPILOGUE = """Each option has an environment variable: `--max-pixels` is `CHARIOTEER_MAX_PIXELS`. The command line
overrides the environment, which overrides the file. `charioteer config` shows the values and where they come from."""


_PREFIX = "CHARIOTEER_"
_SERVICE_LINK = re.compile(r"_SERVICE_(HOST|PORT)|_PORT_\d+_")
_SERVICE_ADDRESS = ("tcp://", "udp://", "sctp://")
_CONFIG = environment(
    "CHARIOTEER_CONFIG", show=True, group=MODELS, help="File (TOML) with values of options, such as port = 8080."
)
_logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    _Models = ModelOptions
    _Plugins = object
else:
    _Models = registry().model_options
    _kinds = [kind for plugin in registry().loaded.values() for kind in plugin.settings]
    _fields = [(kind.__name__, kind | None, None) for kind in _kinds]
    # cyclopts reads no class of the module `types`, which is the default.
    _Plugins = Parameter(name="*")(make_dataclass("PluginSettings", _fields, namespace={"__module__": __name__}))


def serve(
    path: Annotated[Path | None, MODEL_PATH] = None,
    /,
    models: _Models | None = None,
    network: ListeningSettings | None = None,
    access: AccessSettings | None = None,
    transport: TransportSettings | None = None,
    limits: LimitSettings | None = None,
    operation: OperationSettings | None = None,
    plugins: _Plugins | None = None,
    *,
    config: Annotated[Path | None, _CONFIG] = None,  # noqa: ARG001  `read_config_file` reads it
) -> None:
    """Serve models over HTTP and gRPC until stopped."""
    models = with_path(registry().model_options() if models is None else models, path)
    network = network or ListeningSettings()
    if models.demo and network.grpc is None and isinstance(network.grpc_port, DefaultPort):
        # Trying the server must not fail because another program has a port that is not needed.
        network = replace(network, grpc=False)
    added = () if plugins is None else vars(plugins).values()
    parts: Sequence[object] = (network, access, transport, limits, operation, *added)
    values = {name: value for part in parts if part for name, value in vars(part).items()}
    settings = registry().settings(**values)
    _check_trusted_proxies()
    _import_structlog()
    # Collect no garbage while models load. `freeze_garbage` freezes the loaded objects and turns the collector on.
    gc.disable()
    from app.core.server.logs.output import configure_logging
    from app.core.server.process_setup import configure_process, handle_other_signals

    # Tune malloc first: threads that start earlier would have arenas of their own.
    handle_other_signals()
    configure_process()
    logs_json = configure_logging(settings.log_format) == "json"
    faulthandler.enable(2)
    # Listing all options delays the start.
    if any(variable.startswith(_PREFIX) for variable in os.environ):
        for variable, advice in unknown_variables(command.assemble_argument_collection()):
            _logger.warning("unknown environment variable", extra={"variable": variable, "advice": advice})
    try:
        _run(models, settings, logs_json=logs_json)
    except EXPECTED_ERRORS as error:
        if not logs_json:
            raise
        # The readers of a log in JSON cannot read other text.
        _logger.error("server did not start", extra={"reason": sentence_of(error)})
        sys.exit(1)


def _run(models: ModelOptions, settings: ServerSettings, *, logs_json: bool) -> None:
    """Serve until stopped.

    Raise SettingsError if an address is in use. Raise ModelError if no model could be loaded.
    """
    from app.core.assembly.models import find_models

    found = find_models(models)
    if not logs_json:
        # The imports below take longer than a person waits for a sign.
        count = len(found)
        with suppress(OSError):
            sys.stderr.write(f"Loading {count} model{'' if count == 1 else 's'} ...\n")
    from app.core.assembly.service import Service
    from app.core.server import process
    from app.core.server.auth.bind_policy import check_bind_policy, warn_about_clear_text
    from app.core.server.listen import ListenError

    service = Service(settings, lambda: find_models(models), found)
    check_bind_policy(settings, authenticates=service.authenticates)
    warn_about_clear_text(settings, authenticates=service.authenticates)
    # Hardly any of these objects is garbage, and a collection of all would delay the start.
    gc.freeze()

    def announce(address: str, addresses: Mapping[str, str]) -> None:
        if logs_json:
            fields = {"address": address, "chariot_protocol": settings.chariot_protocol, "listeners": dict(addresses)}
            _logger.info("server ready", extra=fields)
            return
        others = [f"{name} at {other}" for name, other in addresses.items()]
        names = dict.fromkeys(item.source.name for item in service.registry.registrations if item.servable is not None)
        browser = ", also for a browser" if service.home is not None else ""
        # rich would need 3 MB more memory.
        shown = f"\033[1m{address}\033[0m" if sys.stderr.isatty() and "NO_COLOR" not in os.environ else address
        lines = [", ".join([f"Charioteer answers at {shown}{browser}", *others]), f"Models: {', '.join(names)}"]
        # The server continues if standard error is closed.
        with suppress(OSError):
            sys.stderr.write("\n".join([*lines, ""]))

    if not logs_json:
        # A person gets the names of all models in one line.
        logging.getLogger(process.__name__).setLevel(logging.WARNING)
    try:
        has_models = process.run(
            service.listeners,
            settings.host,
            service.loading,
            service.grpc,
            service.transport,
            announce,
            service.shutdown_hooks,
            service.app.lifespan(),
        )
    except ListenError as error:
        names = [field.name for field in fields(settings) if field.name == "port" or field.name.endswith("_port")]
        options = [f"--{name.replace('_', '-')}" for name in names if getattr(settings, name) == error.port]
        advice = f"Choose another port with {' or '.join(options)}, or 0 for any free one"
        if target := os.environ.get("MAKE_TARGET"):
            advice = f"Choose another port: make {target} PORT=8090"
        raise SettingsError(f"{error}. {advice}") from None
    if service.engine.busy or service.loading.busy or (has_models and _threads_left()):
        # Exit at once: a worker that outlived the drain, or a model's thread, would keep the interpreter alive.
        logging.shutdown()
        os._exit(0)
    if not has_models:
        reasons = "; ".join(item.detail or item.reason for item in service.registry.registrations)
        raise ModelError(f"no model could be loaded: {reasons}")


def _check_trusted_proxies() -> None:
    """Reject a network in `FORWARDED_ALLOW_IPS` that is not valid: the server would silently trust no proxy of it.

    Raise SettingsError naming the network.
    """
    for item in os.environ.get("FORWARDED_ALLOW_IPS", "").split(","):
        try:
            if "/" in item:
                ipaddress.ip_network(item.strip())
        except ValueError as error:
            message = f"FORWARDED_ALLOW_IPS: Expected addresses and networks, such as 10.0.0.0/8: {error}"
            raise SettingsError(message) from None


def _import_structlog() -> None:
    """Import structlog without rich, which it would use for tracebacks: plain ones are shorter and need less memory."""
    if "rich" not in sys.modules:
        sys.modules["rich"] = cast("Any", None)
        importlib.import_module("structlog")
        del sys.modules["rich"]


def _threads_left() -> bool:
    """Return whether threads are left for which the interpreter would wait at exit."""
    main_thread = threading.main_thread()
    return any(thread is not main_thread and not thread.daemon for thread in threading.enumerate())


def read_config_file(app: App, commands: tuple[str, ...], arguments: ArgumentCollection) -> None:
    """Fill options that neither the command line nor the environment sets from the TOML file of `--config`.

    Raise SettingsError when the file cannot be read.
    """
    argument = arguments.get("--config", None)
    if argument and (tokens := argument.tokens):
        path = tokens[-1].value
        try:
            tomllib.loads(read_regular_file(Path(path)).decode())
        except (OSError, ValueError) as error:
            reason = error.strerror if isinstance(error, OSError) else error
            advice = "name a TOML file of options, or omit --config and CHARIOTEER_CONFIG"
            raise SettingsError(f"--config: {path} cannot be read: {reason}; {advice}") from None
        Toml(path, must_exist=True, use_commands_as_keys=False, source=path)(app, commands, arguments)


def unknown_variables(arguments: ArgumentCollection) -> Iterator[tuple[str, str | None]]:
    """Yield each environment variable with our prefix that no option reads, and what to use instead."""
    names = {name for argument in arguments for name in argument.parameter.env_var or ()}
    known = {name.removeprefix(_PREFIX) for name in names if name.startswith(_PREFIX)}
    for variable, value in sorted(os.environ.items()):
        name = variable.removeprefix(_PREFIX)
        # Kubernetes sets variables with the addresses of a Service called charioteer.
        is_service = _SERVICE_LINK.search(variable) or value.startswith(_SERVICE_ADDRESS)
        if variable.startswith(_PREFIX) and name not in known and not is_service:
            nearest = difflib.get_close_matches(name, known, n=1)
            option = f"serve --{name.lower().replace('_', '-')}"
            yield variable, removed_advice(option) or (f"did you mean {_PREFIX}{nearest[0]}?" if nearest else None)


command = App(
    name="serve",
    usage="Usage: charioteer serve [PATH] [OPTIONS]",
    help_flags=HELP_FLAGS,
    help_epilogue=_EPILOGUE,
    config=(drop_empty_variables, read_config_file, check_values),
    default_parameter=RARE,
)
command.default(serve)
