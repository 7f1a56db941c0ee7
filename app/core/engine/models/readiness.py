"""Readiness of the server and its models for load balancers."""

from app.core.engine.cancellation import stopping_error
from app.core.engine.events import RecordSink
from app.core.engine.models.registry import Registration, Registry
from tasks.inference.error import ErrorKind, InferenceError

_OFFLINE = "The server was taken offline by its operator"


class Readiness:
    """The readiness that every protocol reports. Requests are answered regardless of it.

    Attributes:
        registry: the models with their states.
        online: False while the operator directs load balancers to other servers.
    """

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.online = True
        self._stopping = False
        # If it cannot record, no request can be answered.
        self._record_sink: RecordSink | None = None

    @property
    def not_ready_reason(self) -> str:
        """Return why the server is not ready, empty if it is ready."""
        return self.server_not_ready_reason or self.registry.not_ready_reason

    @property
    def server_not_ready_reason(self) -> str:
        """Return why the server is not ready, apart from its models; empty if there is no such reason."""
        if self._stopping:
            return str(stopping_error())
        if not self.online:
            return _OFFLINE
        return self._record_sink.unavailable_reason if self._record_sink is not None else ""

    def ready_model(self, name: str, version: str | None = None) -> Registration:
        """Return the registration of a model that is ready.

        Raise MODEL_NOT_FOUND, or MODEL_NOT_READY with the reason.
        """
        registration = self.registry.find(name, version)
        if reason := self.server_not_ready_reason:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, reason)
        return registration

    def mark_not_ready(self) -> None:
        """Report not ready from now on, because the server will stop."""
        self._stopping = True
