"""Whether load balancers are to send requests here, and to which models."""

from app.engine.events import Keeper
from app.engine.interest import stopping
from app.engine.registry import Registration, Registry
from tasks.exchange.error import ErrorKind, InferenceError

__all__ = ("Readiness",)

_OFFLINE = "The server was taken offline by its operator"


class Readiness:
    """What every surface says of a server when it is asked whether it is ready. What comes is answered all the same.

    Args:
        registry: knows which models can answer.
        keeper: may be unable to keep anything, so that nothing would be answered.

    Attributes:
        online: False while the server's operator wants load balancers to send requests elsewhere.
    """

    def __init__(self, registry: Registry, keeper: Keeper | None = None) -> None:
        self.registry = registry
        self.online = True
        self._retired = False
        self._keeper = keeper

    @property
    def unready(self) -> str:
        """Why load balancers should send nothing here, empty when they may."""
        return self.withheld or self.registry.unready

    @property
    def withheld(self) -> str:
        """Why load balancers should send nothing here whatever the models could do; empty when they may."""
        if self._retired:
            return str(stopping())
        if not self.online:
            return _OFFLINE
        return self._keeper.refusing if self._keeper is not None else ""

    def ready(self, name: str, version: str | None = None) -> Registration:
        """The registration that answers for a model, if load balancers may send it requests.

        Raises:
            InferenceError: MODEL_NOT_FOUND, or MODEL_NOT_READY with the reason.
        """
        registration = self.registry.find(name, version)
        if withheld := self.withheld:
            raise InferenceError(ErrorKind.MODEL_NOT_READY, withheld)
        return registration

    def retire(self) -> None:
        """The server is about to stop: load balancers are to send nothing more."""
        self._retired = True
