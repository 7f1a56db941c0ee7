"""The registry: all models of a server, their states, and the lookup by name, version or Chariot id."""

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import lru_cache
from typing import cast

import msgspec

from app.core.engine.error_text import list_choices, redact_paths
from app.core.engine.models.servable import Servable, load_model
from app.core.settings.model import ModelError, ModelSource
from tasks.inference.error import ErrorKind, InferenceError

LATEST = "latest"

CHARIOT_PREFIX = "m-"
"""The prefix of a Chariot id in the path ``/v2/models/m-<id>``."""

_VIEW_SUFFIX = "@tensors"
"""The end of the name of a tensor view: all protocols accept it in paths without an escape."""


class ModelState(StrEnum):
    """The state of a model version, as in the repository extension of the Open Inference Protocol."""

    LOADING = "LOADING"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"


class Registration(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One version of one model.

    Attributes:
        source: its files and settings.
        state: whether it can answer.
        reason: why it is not ready, empty if it is. Clients see this text.
        detail: the same for the operator, with the paths of files.
        servable: set if and only if the state is READY.
        enabled: False for a model that was unloaded on purpose; readiness ignores it.
        is_tensor_view: whether it is the tensor view of a model, which shares its state.
    """

    source: ModelSource
    state: ModelState
    reason: str = ""
    detail: str = ""
    servable: Servable | None = None
    enabled: bool = True
    is_tensor_view: bool = False

    def ready_servable(self) -> Servable:
        """Return the servable of a registration that is READY, as `Registry.find` returns it."""
        return cast("Servable", self.servable)

    @property
    def chariot_id(self) -> str:
        """Return the id of the model in Chariot's path, after ``m-``."""
        return (self.source.settings.chariot_id or self.source.name).lower()

    @property
    def tensor_view(self) -> "Registration | None":
        """Return its tensor view; None without one. A model that is not ready may turn out to have none."""
        view = None if self.servable is None else self.servable.tensor_view
        if not self.source.settings.tensor_view or (view is None and self.servable is not None):
            return None
        source = msgspec.structs.replace(self.source, name=self.source.name + _VIEW_SUFFIX)
        return msgspec.structs.replace(self, source=source, servable=view, is_tensor_view=True)


class Registry:
    """Every version of every model. Reads take no lock, because a registration is replaced, never changed.

    Args:
        sources: the models at the start of the server, not loaded yet.
    """

    def __init__(self, sources: Iterable[ModelSource]) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, dict[str, Registration]] = {}
        for source in sources:
            versions = self._models.setdefault(source.name, {})
            if other := versions.get(source.version):
                raise ModelError(
                    f"Two models are called {source.name!r} version {source.version!r}: {other.source.folder} and "
                    f"{source.folder}; rename one of them"
                )
            versions[source.version] = Registration(source=source, state=ModelState.LOADING, reason="not loaded yet")
        self._names_by_chariot_id = self._chariot_ids()
        self._check()

    @property
    def registrations(self) -> Sequence[Registration]:
        """Return every version of every model, sorted by name and version, without tensor views."""
        return [
            _with_health(versions[version])
            for _, versions in sorted(self._models.items())
            for version in sorted(versions, key=version_sort_key)
        ]

    @property
    def not_ready_reason(self) -> str:
        """Return which models are not ready, and why; empty if all are ready and there is at least one."""
        enabled = [registration for registration in self.registrations if registration.enabled]
        if not enabled:
            return "The server has no models"
        not_ready = [registration for registration in enabled if registration.state is not ModelState.READY]
        return "; ".join(
            f"{model.source.name}/{model.source.version}: {model.reason}{self.fallback_note(model)}"
            for model in not_ready
        )

    def fallback_note(self, registration: Registration) -> str:
        """Return which earlier version answers instead of one that is not ready, in brackets; empty if none does."""
        version = registration.source.version
        versions = self.versions(registration.source.name)
        latest = next((other.source.version for other in versions if other.servable is not None), None)
        if latest is None or version_sort_key(latest) >= version_sort_key(version):
            return ""
        return f" (version {latest} answers instead)"

    @property
    def tensor_views(self) -> Sequence[Registration]:
        """Return the tensor views of all versions that are ready, in the order of `registrations`."""
        views = [model.tensor_view for model in self.registrations if model.servable is not None]
        return [view for view in views if view is not None and view.source.name not in self._models]

    @property
    def names(self) -> Sequence[str]:
        """Return the names of all models, and of the tensor views that are ready, sorted."""
        return sorted({*self._models, *(view.source.name for view in self.tensor_views)})

    @property
    def only_model(self) -> str | None:
        """Return the name of the only model, None if there are several or none."""
        return next(iter(self._models)) if len(self._models) == 1 else None

    def max_waiting(self, name: str) -> int | None:
        """Return the largest `max_waiting` in the settings of a model's versions, None if none sets it."""
        limits = [version.source.settings.max_waiting for version in self._models.get(name, {}).values()]
        return max((limit for limit in limits if limit is not None), default=None)

    def owner(self, name: str) -> str:
        """Return the model, in any state, that has `name` or whose tensor view has it; "" for an unknown name."""
        if name in self._models:
            return name
        return name.removesuffix(_VIEW_SUFFIX) if self.versions(name) else ""

    def versions(self, name: str) -> Sequence[Registration]:
        """Return every version of one model or tensor view, the latest first; an empty list for an unknown name."""
        versions = self._models.get(name, {})
        if not versions and (model := name.removesuffix(_VIEW_SUFFIX)) in self._models:
            return [view for version in self.versions(model) if (view := version.tensor_view) is not None]
        return [_with_health(versions[version]) for version in sorted(versions, key=version_sort_key, reverse=True)]

    def replace(self, name: str, registrations: Iterable[Registration]) -> None:
        """Replace all versions of a model atomically; requests in flight keep the old ones."""
        versions = {registration.source.version: registration for registration in registrations}
        with self._lock:
            models = dict(self._models)
            if versions:
                models[name] = versions
            else:
                models.pop(name, None)
            self._models = models
            self._names_by_chariot_id = self._chariot_ids()

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable]) -> Registration:
        """Load one of the sources with `load`, and store the outcome; a failure is stored, not raised."""
        previous = self._models.get(source.name, {}).get(source.version)
        try:
            registration = Registration(source=source, state=ModelState.READY, servable=load_model(source, load))
        except ModelError as error:
            reason = redact_paths(str(error), source)
            registration = Registration(source=source, state=ModelState.UNAVAILABLE, reason=reason, detail=str(error))
        with self._lock:
            versions = self._models.get(source.name, {})
            # If it was unloaded or reloaded meanwhile, the later change wins.
            if previous is not None and versions.get(source.version) is previous:
                versions[source.version] = registration
        return registration

    def find(self, name: str, version: str | None = None) -> Registration:
        """Return the registration of a model or tensor view: the requested version, or the latest one that is ready.

        The version "latest" is the same as None. Raise MODEL_NOT_FOUND, or MODEL_NOT_READY with the reason.
        """
        versions = self._models.get(name)
        if versions is not None and len(versions) == 1 and version is None:
            # The usual case: nothing to sort.
            (registration,) = versions.values()
            servable = registration.servable
            if servable is not None and (servable.health is None or not servable.health.unavailable_reason):
                return registration
        elif versions is None:
            model = name.removesuffix(_VIEW_SUFFIX)
            if model in self._models and (view := self.find(model, version).tensor_view):
                return view
            message = f"Model {name!r} is not known" if name else "The request names no model"
            raise _not_found(message, "This server has", self._models)
        elif version not in (None, LATEST, *versions):
            raise _not_found(f"Model {name!r} has no version {version!r}", "It has", versions)
        candidates = [model for model in self.versions(name) if version in (None, LATEST, model.source.version)]
        for registration in candidates:
            if registration.servable is not None:
                return registration
        latest = candidates[0]
        message = f"Model {name!r} version {latest.source.version!r} is not ready: {latest.reason}"
        raise InferenceError(ErrorKind.MODEL_NOT_READY, message)

    def name_for_path(self, target: str) -> str:
        """Return the name of the model in the path ``/v2/models/<target>``: a name, or ``m-`` and a Chariot id.

        An empty target means the default model, for Chariot's paths without a model. A server with one model accepts
        every Chariot id. A model with the name ``m-<id>`` is used if no model has the id. Raise MODEL_NOT_FOUND for an
        unknown Chariot id, with a list of the ids, or without a default; a name is not looked up.
        """
        if target and not target.startswith(CHARIOT_PREFIX):
            return target
        models = self._models
        if len(models) == 1:
            return next(iter(models))
        if not target:
            return self.default_name()
        chariot_id = target.removeprefix(CHARIOT_PREFIX)
        name = self._names_by_chariot_id.get(chariot_id.lower(), target)
        if name not in self._models:
            choices = self._names_by_chariot_id
            raise _not_found(f"No model has the Chariot id {chariot_id!r}", "This server has", choices)
        return name

    def default_name(self) -> str:
        """Return the model for a path without a model name: the only one, or the default.

        Raise MODEL_NOT_FOUND, with a list of paths to choose from.
        """
        if (only_model := self.only_model) is not None:
            return only_model
        models = self.registrations
        if (default := next((model for model in models if model.source.settings.default), None)) is not None:
            return default.source.name
        paths = [f"/v2/models/{CHARIOT_PREFIX}{model.chariot_id}/infer" for model in models]
        message = 'This path names no model, and none is set as default with "default": true in its model-settings.json'
        raise _not_found(message, "Choose one of", paths)

    def _chariot_ids(self) -> Mapping[str, str]:
        """Return the name of each model by its Chariot id."""
        return {registration.chariot_id: registration.source.name for registration in self.registrations}

    def _check(self) -> None:
        """Check the settings of all models. Raise ModelError if two models share a Chariot id, or are the default."""
        owners: dict[str, str] = {}
        defaults: set[str] = set()
        for model in self.registrations:
            name = model.source.name
            owner = owners.setdefault(model.chariot_id, name)
            if owner != name:
                raise ModelError(f"Models {owner!r} and {name!r} share the Chariot id {model.chariot_id!r}")
            if model.source.settings.default:
                defaults.add(name)
        if len(defaults) > 1:
            raise ModelError(f"Only one model can be the default, but {', '.join(sorted(defaults))} all say so")


def _with_health(registration: Registration) -> Registration:
    """Return the registration, as UNAVAILABLE and without its servable while that reports a problem."""
    health = None if registration.servable is None else registration.servable.health
    if health is None or not (reason := health.unavailable_reason):
        return registration
    return msgspec.structs.replace(
        registration,
        state=ModelState.UNAVAILABLE,
        reason=redact_paths(reason, registration.source),
        detail=reason,
        servable=None,
    )


@lru_cache(maxsize=1024)
def version_sort_key(version: str) -> tuple[tuple[int, ...], str]:
    """Return a sort key with 10 after 9, and 1.10 after 1.9; names that are not numbers come first."""
    numbers = version.removeprefix("v").split(".")
    return (tuple(int(number) for number in numbers) if all(map(str.isdecimal, numbers)) else (), version)


def _not_found(message: str, prefix: str, choices: Iterable[str]) -> InferenceError:
    names = list_choices(sorted(set(choices), key=version_sort_key))
    return InferenceError(ErrorKind.MODEL_NOT_FOUND, f"{message}. {prefix}: {names}")
