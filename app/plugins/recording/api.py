"""What recording gives to the other plugins of a server, and what it takes from them."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

from app.core.engine.request_context import RequestContext

if TYPE_CHECKING:  # servers without truths start faster
    from app.plugins.recording.inference import RecordedInference, Truth
    from app.plugins.recording.truth_store import RightAnswer, TruthStore

T = TypeVar("T")


class StoredTruths(Protocol):
    """Provided by recording, if the server stores truths."""

    async def run(self, work: "Callable[[TruthStore], T]") -> T:
        """Return the result of `work` with the store. Raise OVERLOADED if too much work waits; also as `work`."""
        ...


class ShadowWatch(Protocol):
    """Provided by recording: returns what records a request whose shadow answer selects it.

    It is None if that cannot change anything. It is called with the number of samples that the shadow version answers
    in another way.
    """

    def __call__(self, context: RequestContext, /) -> Callable[[int], None] | None: ...


class TruthJudge(Protocol):
    """Taken by recording: returns the truth of an inference from its right records.

    Raise INVALID_REQUEST, naming the field.
    """

    def __call__(self, inference: "RecordedInference", answer: "RightAnswer", /) -> "Truth": ...
