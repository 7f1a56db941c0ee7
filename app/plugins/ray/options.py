"""Options of the application on Ray: arguments, which need a restart, and a user config, which does not."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar, cast

import msgspec
from cyclopts import App

from app.core.plugins import registry
from app.core.settings.network import TransportSettings
from app.core.settings.server import ModelOptions, ServerSettings, SettingsError

T = TypeVar("T")

_MODEL_OPTIONS = tuple(field.name for field in fields(registry().model_options) if field.name != "demo")
"""The user config of the ingress, which applies without a restart. Every path must exist on every node."""
_NOT_BEHIND_RAY: Mapping[str, object] = {
    "grpc": False,
    "tensorflow_serving": False,
    "page": False,
}
"""Ray's proxy forwards only HTTP to one port. The page would show the state of a single replica."""
_CONNECTION_SETTINGS = {field.name for field in fields(TransportSettings)}
"""Rejected, because they have no effect: Ray's proxy accepts the connections, not this server."""


class RayOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the application, without those that select models.

    Attributes:
        multiplexed: 0 for one deployment for each model; else one deployment for all models, with at most this many
            models in a replica.
        batch_size: maximum number of calls, of any number of inputs each, in a batch.
        batch_wait_seconds: seconds that the first call of a batch waits for others.
        timeout_seconds: maximum seconds for a call of a model, with queueing and retries.
        retries: maximum number of retries after a lost replica.
        ingress: options of Ray Serve for the ingress deployment, such as ``num_replicas``.
        models: options of Ray Serve for the model deployments, such as ``autoscaling_config``.
        settings: server settings, such as ``max_request_bytes``.
    """

    multiplexed: Annotated[int, msgspec.Meta(ge=0)] = 0
    batch_size: Annotated[int, msgspec.Meta(ge=1)] = 8
    batch_wait_seconds: Annotated[float, msgspec.Meta(ge=0, le=1e9)] = 0.005
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=1e9)] = 60.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2
    ingress: Mapping[str, Any] = {}
    models: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}


def read_options(arguments: Mapping[str, object]) -> tuple[RayOptions, Mapping[str, object]]:
    """Read the arguments as Ray passes them: typed from a config file, text from the command line.

    Raise SettingsError naming the invalid argument.

    Returns:
        The options, and the arguments that select models: the user config of the ingress.
    """
    choice = {name: value for name, value in arguments.items() if name in _MODEL_OPTIONS and value is not None}
    others = {name: value for name, value in arguments.items() if name not in _MODEL_OPTIONS}
    options = _convert(others, RayOptions, "argument", (*_MODEL_OPTIONS, *RayOptions.__struct_fields__))
    model_options(choice, "argument")
    # Check the server settings here, because otherwise every ingress replica would fail and restart forever.
    server_settings(options.settings)
    return options, choice


def model_options(user_config: Mapping[str, object], subject: str = "user_config") -> ModelOptions:
    """Read the options that select models. Raise SettingsError naming the invalid field."""
    for name in user_config:
        if name not in _MODEL_OPTIONS:
            expected = ", ".join(_MODEL_OPTIONS)
            raise SettingsError(f"{subject}: Object contains unknown field `{name}`; expected {expected}")
    return _convert(user_config, registry().model_options, subject, _MODEL_OPTIONS)


def server_settings(settings: Mapping[str, object]) -> ServerSettings:
    """Return the settings of the service in an ingress replica.

    Raise SettingsError naming the setting that is unknown, not available behind Ray, or out of its range.
    """
    kind = registry().settings
    known = {field.name for field in fields(kind)} - _NOT_BEHIND_RAY.keys()
    for name in settings:
        if name in _CONNECTION_SETTINGS:
            raise SettingsError(f"settings.{name}: this has no effect, because Ray's proxy accepts the connections")
        if name not in known:
            raise SettingsError(f"settings.{name}: Expected one of {', '.join(sorted(known))}")
    try:
        # Ray's proxy passes on the host that its client named.
        given = {"allowed_hosts": "*", **settings, **_NOT_BEHIND_RAY}
        converted = msgspec.convert(given, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings: {error}") from None

    def take_settings(_: Any = kind()) -> None:  # noqa: B008
        """Take the settings as a command does, so that they have the validators of options."""

    take_settings.__annotations__["_"] = kind
    for argument in App(default_command=take_settings).assemble_argument_collection():
        name = argument.field_info.name
        if name in settings:
            value = getattr(converted, name)
            try:
                for validator in cast("Iterable[Any]", argument.parameter.validator or ()):
                    validator(argument.hint, value)
            except ValueError as error:
                raise SettingsError(f"settings.{name}: {error}") from None
            if isinstance(value, float) and not math.isfinite(value):
                raise SettingsError(f"settings.{name}: Expected a finite number, got {value}")
    return converted


def _path(kind: type, value: object) -> object:
    """Convert a path, the one type of setting that msgspec does not know."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise TypeError(f"Expected a path, got {value!r}")


def _convert(values: Mapping[str, object], kind: type[T], subject: str, known: Sequence[str]) -> T:
    try:
        return msgspec.convert(values, kind, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise SettingsError(f"{subject}: {error}; expected {', '.join(known)}") from None
