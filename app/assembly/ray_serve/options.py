"""Options of the application on Ray: arguments, which need a restart, and a user config, which does not."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from app.settings.network import TransportSettings
from app.settings.server import ModelOptions, ServerSettings, SettingsError

__all__ = ("ModelChoice", "RayOptions", "model_options", "read_choice", "read_options", "server_settings")

ChoiceT = TypeVar("ChoiceT", bound="ModelChoice")

_NOT_BEHIND_RAY: Mapping[str, object] = {
    "grpc": False,
    "tensorflow_serving": False,
    "page": False,
}
"""Ray's proxy forwards only HTTP to one port. The page would show the state of a single replica."""
_CONNECTION_SETTINGS = {field.name for field in fields(TransportSettings)}
"""Rejected, because they have no effect: Ray's proxy accepts the connections, not this server."""


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Selects the models: the user config of the ingress, applied without a restart.

    Attributes:
        model: a model file or folder. Every path must exist on every node.
        model_repository: a folder of model folders.
        model_dir: any of the above.
        model_name: name of the model, if there is only one.
        score_threshold: default score threshold; requests and models may override it.
        device: default device for ONNX Runtime, such as ``cuda:0``; models may override it.
        allow_code: whether models may be Python classes.
        model_links: folders, separated by commas, that links in model folders may lead to.
        require_manifest: whether to reject models whose files are not all listed in a model.sha256.
        model_signing_key: file of public keys. One of them must have signed the model.sha256.
        isolate: whether each model runs in its own process, within the replica.
        compile_cache: folder for compiled graphs of the runtime openvino, on every node.
    """

    model: str | None = None
    model_repository: str | None = None
    model_dir: str | None = None
    model_name: str | None = None
    score_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    device: str | None = None
    allow_code: bool = False
    model_links: str | None = None
    require_manifest: bool = False
    model_signing_key: str | None = None
    isolate: bool = False
    compile_cache: str | None = None


class RayOptions(ModelChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the application.

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
    batch_wait_seconds: Annotated[float, msgspec.Meta(ge=0)] = 0.005
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 60.0
    retries: Annotated[int, msgspec.Meta(ge=0)] = 2
    ingress: Mapping[str, Any] = {}
    models: Mapping[str, Any] = {}
    settings: Mapping[str, Any] = {}

    @property
    def choice(self) -> ModelChoice:
        """Return the part that may change while the application serves."""
        return ModelChoice(**{name: getattr(self, name) for name in ModelChoice.__struct_fields__})

    def without_choice(self) -> "RayOptions":
        """Return the options with the default `ModelChoice`."""
        return msgspec.structs.replace(self, **msgspec.structs.asdict(ModelChoice()))


def read_options(arguments: Mapping[str, object]) -> RayOptions:
    """Read the arguments as Ray passes them: typed from a config file, text from the command line.

    Raises:
        SettingsError: naming the invalid argument.
    """
    options = _read(arguments, RayOptions, "argument")
    # Check the server settings here, because otherwise every ingress replica would fail and restart forever.
    server_settings(options.settings)
    return options


def read_choice(user_config: Mapping[str, object]) -> ModelChoice:
    """Read the ingress's user config.

    Raises:
        SettingsError: naming the invalid field.
    """
    return _read(user_config, ModelChoice, "user_config")


def model_options(choice: ModelChoice) -> ModelOptions:
    """Return the choice as options of the command line."""
    folders = {name: getattr(choice, name) for name in ("model", "model_repository", "model_dir")}
    paths = {name: None if path is None else Path(path) for name, path in folders.items()}
    return ModelOptions(
        model=paths["model"],
        model_repository=paths["model_repository"],
        model_dir=paths["model_dir"],
        model_name=choice.model_name,
        score_threshold=choice.score_threshold,
        device=choice.device,
        allow_code=choice.allow_code,
        model_links=choice.model_links,
        require_manifest=choice.require_manifest,
        model_signing_key=None if choice.model_signing_key is None else Path(choice.model_signing_key),
        isolate=choice.isolate,
    )


def server_settings(settings: Mapping[str, object]) -> ServerSettings:
    """Return the settings of the service in an ingress replica.

    Raises:
        SettingsError: naming the setting that is unknown, or not available behind Ray.
    """
    known = {field.name for field in fields(ServerSettings)} - _NOT_BEHIND_RAY.keys()
    for name in settings:
        if name in _CONNECTION_SETTINGS:
            raise SettingsError(f"settings.{name}: this has no effect, because Ray's proxy accepts the connections")
        if name not in known:
            raise SettingsError(f"settings.{name}: Expected one of {', '.join(sorted(known))}")
    try:
        return msgspec.convert({**settings, **_NOT_BEHIND_RAY}, ServerSettings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings: {error}") from None


def _path(kind: type, value: object) -> object:
    """Convert a path, the one type of setting that msgspec does not know."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError


def _read(settings: Mapping[str, object], kind: type[ChoiceT], subject: str) -> ChoiceT:
    try:
        return msgspec.convert(settings, kind, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise SettingsError(f"{subject}: {error}; expected {known}") from None
