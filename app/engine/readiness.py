"""Readiness of the server and its models for load balancers."""

from app.engine.events import RecordSink
from app.engine.interest import stopping
from app.engine.registry import Registration, Registry
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Readiness",)

_OFFLINE = "The server was taken offline by its operator"


class Readiness:
    """The readiness that every protocol reports. Requests are answered regardless of it.

    Args:
        registry: the models with their states.
        keeper: if it cannot record, no request can be answered.

    Attributes:
        online: False while the operator directs load balancers to other servers.
    """

    def __init__(self, registry: Registry, keeper: RecordSink | None = None) -> None:
        self.registry = registry
        self.online = True
        self._retired = False
        self._keeper = keeper

    @property
    def unready(self) -> str:
        """Return why the server is not ready, empty if it is ready."""
        return self.withheld or self.registry.unready

    @property
    def withheld(self) -> str:
        """Return why the server is not ready, apart from its models; empty if there is no such reason."""
        if self._retired:
            return str(stopping())
        if not self.online:
            return _OFFLINE
        return self._keeper.refusing if self._keeper is not None else ""

    def ready(self, name: str, version: str | None = None) -> Registration:
        """Return the registration of a model that is ready.

        Raises:
            InferenceError: MODEL_NOT_FOUND, or MODEL_NOT_READY with the reason.
        """
        registration = self.registry.find(name, version)
        if withheld := self.withheld:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, withheld)
        return registration

    def retire(self) -> None:
        """Report not ready from now on, because the server will stop."""
        self._retired = True
