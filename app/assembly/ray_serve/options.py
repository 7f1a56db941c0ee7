"""What the application on Ray is told: arguments, which start it anew, and a user config, which does not."""

from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, TypeVar

import msgspec

from app.settings.server import ModelOptions, ServerSettings, SettingsError
from app.settings.transport import TransportSettings

__all__ = ("ModelChoice", "RayOptions", "model_options", "read_choice", "read_options", "server_settings")

ChoiceT = TypeVar("ChoiceT", bound="ModelChoice")

_NOT_BEHIND_RAY: Mapping[str, object] = {
    "grpc": False,
    "tensorflow_serving": False,
    "page": False,
}
"""Ray's proxy forwards HTTP alone, to one port; the page would tell of one replica only."""
_OF_CONNECTIONS = {each.name for each in fields(TransportSettings)}
"""Nobody shall believe that a connection is under TLS, or bounded, which it is not."""


class ModelChoice(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which models there are: the user config of the ingress, taken up without a pause.

    Attributes:
        model: one model: its file, or its folder. Every node has to see it under the same path, here and below.
        model_repository: a folder with a folder for each model.
        model_dir: either of the two.
        score_threshold: findings that score lower are left out, unless request or model say otherwise.
        device: where ONNX Runtime runs models that do not say so, such as ``cuda:0``.
        allow_code: whether models may be Python classes.
        model_links: folders, with commas between them, that links in models' folders may lead to.
        require_manifest: whether only models are loaded whose files are listed in a model.sha256.
        model_signing_key: a file of public keys, one of which has to have signed that list.
        isolate: whether each model runs in a process of its own, within the replica.
    """

    model: str | None = None
    model_repository: str | None = None
    model_dir: str | None = None
    score_threshold: Annotated[float, msgspec.Meta(ge=0, le=1)] | None = None
    device: str | None = None
    allow_code: bool = False
    model_links: str | None = None
    require_manifest: bool = False
    model_signing_key: str | None = None
    isolate: bool = False


class RayOptions(ModelChoice, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The arguments of the application.

    Attributes:
        multiplexed: 0 for a deployment for each model; else one deployment for all of them, whose replicas hold so many
            models at a time.
        batch_size: so many calls, of any number of inputs each, are put together for the model at most.
        batch_wait_seconds: so long the first of them waits for others.
        timeout_seconds: a call of a model may take so long, waiting for a replica and retries included.
        retries: how often a call is repeated whose replica was lost.
        ingress: options of Ray Serve for the deployment that reads and writes, such as ``num_replicas``.
        models: options of Ray Serve for the deployments that run models, such as ``autoscaling_config``.
        settings: of the server, such as ``max_request_bytes``.
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
        """What of this may change while the application answers."""
        return ModelChoice(**{name: getattr(self, name) for name in ModelChoice.__struct_fields__})

    def without_choice(self) -> "RayOptions":
        """The rest of it."""
        return msgspec.structs.replace(self, **msgspec.structs.asdict(ModelChoice()))


def read_options(arguments: Mapping[str, object]) -> RayOptions:
    """The arguments as Ray passes them: typed from a config file, text from its command line.

    Raises:
        SettingsError: naming the argument that is not understood.
    """
    options = _read(arguments, RayOptions, "argument")
    # Or every replica of the ingress would fail on its own, and be started again and again.
    server_settings(options.settings)
    return options


def read_choice(user_config: Mapping[str, object]) -> ModelChoice:
    """The ingress's user config.

    Raises:
        SettingsError: naming the field that is not understood.
    """
    return _read(user_config, ModelChoice, "user_config")


def model_options(choice: ModelChoice) -> ModelOptions:
    """The same as the command line has it."""
    folders = {name: getattr(choice, name) for name in ("model", "model_repository", "model_dir")}
    paths = {name: None if each is None else Path(each) for name, each in folders.items()}
    return ModelOptions(
        model=paths["model"],
        model_repository=paths["model_repository"],
        model_dir=paths["model_dir"],
        score_threshold=choice.score_threshold,
        device=choice.device,
        allow_code=choice.allow_code,
        model_links=choice.model_links,
        require_manifest=choice.require_manifest,
        model_signing_key=None if choice.model_signing_key is None else Path(choice.model_signing_key),
        isolate=choice.isolate,
    )


def server_settings(told: Mapping[str, object]) -> ServerSettings:
    """The settings of the service in an ingress replica.

    Raises:
        SettingsError: naming the setting that is not known, or not to be had behind Ray.
    """
    known = {each.name for each in fields(ServerSettings)} - _NOT_BEHIND_RAY.keys()
    for name in told:
        if name in _OF_CONNECTIONS:
            raise SettingsError(f"settings.{name}: Ray's own proxy takes the connections, and it would change nothing")
        if name not in known:
            raise SettingsError(f"settings.{name}: Expected one of {', '.join(sorted(known))}")
    try:
        return msgspec.convert({**told, **_NOT_BEHIND_RAY}, ServerSettings, strict=False, dec_hook=_path)
    except msgspec.ValidationError as error:
        raise SettingsError(f"settings: {error}") from None


def _path(kind: type, value: object) -> object:
    """The one type of settings that msgspec does not know."""
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError


def _read(told: Mapping[str, object], kind: type[ChoiceT], what: str) -> ChoiceT:
    try:
        return msgspec.convert(told, kind, strict=False)
    except msgspec.ValidationError as error:
        known = ", ".join(kind.__struct_fields__)
        raise SettingsError(f"{what}: {error}; known are {known}") from None
