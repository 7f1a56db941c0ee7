"""The models of a server: which there are, in which state, and which one a request means."""

import threading
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum

import msgspec

from app.engine.reasons import without_paths
from app.engine.servable import Servable
from app.settings.model import ModelError, ModelSource
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("ModelState", "Registration", "Registry", "loaded", "version_order")


LATEST = "latest"


class ModelState(StrEnum):
    """Whether a model version can answer, in the words of the Open Inference Protocol's repository extension."""

    LOADING = "LOADING"
    READY = "READY"
    UNAVAILABLE = "UNAVAILABLE"


class Registration(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """One version of one model.

    Attributes:
        source: where it comes from.
        state: whether it can answer.
        reason: why it cannot, empty when it can. It is told to every sender.
        detail: the same for whoever runs the server, with the paths of files.
        servable: there exactly when the state is READY.
        wanted: False for a model that was unloaded on purpose, for which readiness does not wait.
    """

    source: ModelSource
    state: ModelState
    reason: str = ""
    detail: str = ""
    servable: Servable | None = None
    wanted: bool = True

    def ready_servable(self) -> Servable:
        """What answers.

        Raises:
            InferenceError: MODEL_NOT_READY with the reason.
        """
        if self.servable is None:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, self.reason)
        return self.servable

    @property
    def chariot_id(self) -> str:
        """What Chariot's path calls the model, after ``m-``."""
        return (self.source.settings.chariot_id or self.source.name).lower()


class Registry:
    """Every version of every model. Reads take no lock: a change replaces a registration, it never alters one.

    Args:
        sources: the models that the server was started with, none loaded yet.
    """

    def __init__(self, sources: Iterable[ModelSource]) -> None:
        self._lock = threading.Lock()
        self._models: dict[str, dict[str, Registration]] = {}
        for source in sources:
            versions = self._models.setdefault(source.name, {})
            if source.version in versions:
                raise ModelError(
                    f"Two models are called {source.name!r} version {source.version!r}; rename one of them"
                )
            versions[source.version] = Registration(source=source, state=ModelState.LOADING, reason="not loaded yet")
        self._check_ids()
        self._check_labels()

    @property
    def registrations(self) -> Sequence[Registration]:
        """Every version of every model, sorted by name and version."""
        return [
            _now(versions[version])
            for _, versions in sorted(self._models.items())
            for version in sorted(versions, key=version_order)
        ]

    @property
    def unready(self) -> str:
        """Which models cannot answer, and why; empty when all can, and there is one at least."""
        wanted = [each for each in self.registrations if each.wanted]
        if not wanted:
            return "The server has no models"
        waiting = [each for each in wanted if each.state is not ModelState.READY]
        return "; ".join(f"{each.source.name}/{each.source.version}: {each.reason}" for each in waiting)

    @property
    def several(self) -> bool:
        """Whether there is more than one model."""
        return len(self._models) > 1

    def own_bound(self, name: str) -> int | None:
        """How many requests may wait for a model, where the settings of any of its versions say so."""
        own = [each.source.settings.max_waiting for each in self._models.get(name, {}).values()]
        return max((each for each in own if each is not None), default=None)

    def knows(self, name: str) -> bool:
        """Whether a model has the name, in whatever state."""
        return name in self._models

    def versions(self, name: str) -> Sequence[Registration]:
        """Every version of one model, the latest first; none for a name that is not known."""
        versions = self._models.get(name, {})
        return [_now(versions[each]) for each in sorted(versions, key=version_order, reverse=True)]

    def replace(self, name: str, registrations: Iterable[Registration]) -> None:
        """Put `registrations` in the place of all versions of a model, in one step; requests in flight keep theirs."""
        versions = {each.source.version: each for each in registrations}
        with self._lock:
            models = dict(self._models)
            if versions:
                models[name] = versions
            else:
                models.pop(name, None)
            self._models = models

    def load(self, source: ModelSource, load: Callable[[ModelSource], Servable]) -> Registration:
        """Load one of the sources with `load` and record how that ended; a failure is recorded, not raised."""
        before = self._models.get(source.name, {}).get(source.version)
        try:
            registration = Registration(source=source, state=ModelState.READY, servable=loaded(source, load))
        except ModelError as error:
            reason = without_paths(str(error), source)
            registration = Registration(source=source, state=ModelState.UNAVAILABLE, reason=reason, detail=str(error))
        with self._lock:
            versions = self._models.get(source.name, {})
            # Somebody may have unloaded it meanwhile, or loaded it anew: theirs is the later word.
            if before is not None and versions.get(source.version) is before:
                versions[source.version] = registration
        return registration

    def labelled(self, name: str, label: str) -> str | None:
        """The version of a model that its settings call `label`; None when none is called so."""
        for registration in self.versions(name):
            if (version := registration.source.settings.version_labels.get(label)) is not None:
                return version
        return None

    def find(self, name: str, version: str | None = None) -> Registration:
        """The registration that can answer for a model: the version asked for, or the latest that is ready.

        The version "latest" is the same as none.

        Raises:
            InferenceError: MODEL_NOT_FOUND, or MODEL_NOT_READY with the reason.
        """
        found = self._versions(name, None if version == LATEST else version)
        for registration in found:
            if registration.servable is not None:
                return registration
        latest = found[0]
        message = f"Model {name!r} version {latest.source.version!r} is not ready: {latest.reason}"
        raise InferenceError(ErrorKind.MODEL_NOT_READY, message)

    def name_for_chariot(self, chariot_id: str) -> str:
        """The name of the model that Chariot calls `chariot_id`; a server with one model answers to every id.

        Raises:
            InferenceError: MODEL_NOT_FOUND, listing the ids there are.
        """
        if len(self._models) == 1:
            return next(iter(self._models))
        known = {each.chariot_id: each.source.name for each in self.registrations}
        if chariot_id.lower() in known:
            return known[chariot_id.lower()]
        raise _not_found(f"No model has the Chariot id {chariot_id!r}", "This server has", known)

    def default_name(self) -> str:
        """The name of the model meant by a path that names none: the only one, or the one set as default.

        Raises:
            InferenceError: MODEL_NOT_FOUND, saying how to choose.
        """
        if len(self._models) == 1:
            return next(iter(self._models))
        for registration in self.registrations:
            if registration.source.settings.default:
                return registration.source.name
        paths = [f"/v2/models/m-{each.chariot_id}/infer" for each in self.registrations]
        message = 'This path names no model, and none is set as default with "default": true in its model-settings.json'
        raise _not_found(message, "Choose one of", paths)

    def _versions(self, name: str, version: str | None) -> Sequence[Registration]:
        versions = self._models.get(name)
        if versions is None:
            raise _not_found(f"Model {name!r} is not known", "This server has", self._models)
        if version is not None and version not in versions:
            raise _not_found(f"Model {name!r} has no version {version!r}", "It has", versions)
        wanted = versions if version is None else [version]
        return [_now(versions[each]) for each in sorted(wanted, key=version_order, reverse=True)]

    def _check_ids(self) -> None:
        owners: dict[str, str] = {}
        defaults: set[str] = set()
        for each in self.registrations:
            owner = owners.setdefault(each.chariot_id, each.source.name)
            if owner != each.source.name:
                raise ModelError(f"Models {owner!r} and {each.source.name!r} share the Chariot id {each.chariot_id!r}")
            if each.source.settings.default:
                defaults.add(each.source.name)
        if len(defaults) > 1:
            raise ModelError(f"Only one model can be the default, but {', '.join(sorted(defaults))} all say so")

    def _check_labels(self) -> None:
        meant: dict[tuple[str, str], str] = {}
        for each in self.registrations:
            name = each.source.name
            for label, version in each.source.settings.version_labels.items():
                if version not in self._models[name]:
                    raise ModelError(
                        f"Model {name!r}: version_labels: There is no version {version!r} to be called {label!r}"
                    )
                if meant.setdefault((name, label), version) != version:
                    raise ModelError(f"Model {name!r}: version_labels: Its versions disagree on {label!r}")


def _now(registration: Registration) -> Registration:
    """The same, without its servable while that can answer nobody."""
    trouble = registration.servable.trouble if registration.servable is not None else ""
    if not trouble:
        return registration
    return msgspec.structs.replace(
        registration,
        state=ModelState.UNAVAILABLE,
        reason=without_paths(trouble, registration.source),
        detail=trouble,
        servable=None,
    )


def loaded(source: ModelSource, load: Callable[[ModelSource], Servable]) -> Servable:
    """What `load` makes of `source`.

    Raises:
        ModelError: whatever went wrong: what a framework raises, or a model's own code, is that model's failure alone.
    """
    try:
        return load(source)
    except ModelError:
        raise
    except BaseException as error:  # an order to stop among them, which is nobody's but the model's
        raise ModelError(f"{source.folder} failed to load: {type(error).__name__}: {error}") from error


def version_order(version: str) -> tuple[tuple[int, ...], str]:
    """A sort key under which 10 comes after 9, and 1.10 after 1.9; names without numbers come first."""
    numbers = version.removeprefix("v").split(".")
    return (tuple(int(number) for number in numbers) if all(map(str.isdecimal, numbers)) else (), version)


def _not_found(message: str, introduction: str, choices: Iterable[str]) -> InferenceError:
    listed = ", ".join(sorted(set(choices))) or "no models"
    return InferenceError(ErrorKind.MODEL_NOT_FOUND, f"{message}. {introduction}: {listed}")
