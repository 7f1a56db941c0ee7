"""The kinds of requests of a run, what they are made of, and what the answer to each has to be."""

import base64
import random
from collections.abc import Awaitable, Callable

import msgspec

from tests.soak.references import PICTURES, QUESTIONS, ROOT, References, same
from tests.soak.shelf import ADDENDS, BREAKABLE, ISOLATED, MOVABLE, REPLACED, UNLOADED, Shelf
from tests.soak.wire import Answer, Wire

__all__ = ("NUMBERED", "Ask", "Material", "Outcome", "Shot", "judged", "metadata_of", "refused")


class Outcome(msgspec.Struct, frozen=True):
    """What came of a request.

    Attributes:
        status: in HTTP's numbers; 0 for no answer.
        note: what is wrong with an answer; of a refusal, what it says.
    """

    status: int
    note: str = ""


Ask = Callable[[Wire, str, random.Random], Awaitable[Outcome]]
"""Sends a request under an id, and holds the answer against what it has to be."""

NUMBERED = ("half_plus_two", UNLOADED, REPLACED, BREAKABLE, MOVABLE, ISOLATED)
"""The models that are sent a number."""
_NUMBERS = 1 << 20
"""Whole numbers below this, their halves, and these and a bit are exact in FP32."""


class Shot(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of request.

    Attributes:
        surface: the protocol, and the way of it.
        model: that is asked.
        weight: how often it is sent, beside the others.
        ask: sends it.
        rows: that the store has to have of it once it is answered.
        most: the largest number of open requests of its surface; above it another kind is sent. None for no limit.
    """

    surface: str
    model: str
    weight: float
    ask: Ask
    rows: int = 1
    most: int | None = None


class Material:
    """What requests are made of.

    Args:
        references: the right answers.
        shelf: the models; from time to time one is replaced.

    Attributes:
        references: the right answers.
        pictures: encoded images, by name.
        texts: the same in base64.
    """

    def __init__(self, references: References, shelf: Shelf) -> None:
        self.references = references
        self.pictures = {name: (ROOT / "fixtures" / "images" / name).read_bytes() for name in PICTURES}
        self.texts = {name: base64.b64encode(data).decode() for name, data in self.pictures.items()}
        self._shelf = shelf

    def picture(self, chance: random.Random) -> str:
        """The name of one."""
        return chance.choice(PICTURES)

    def question(self, chance: random.Random) -> str:
        """Return a question about the first image."""
        return chance.choice(QUESTIONS)

    def number(self, chance: random.Random) -> float:
        """Return a number that is probably unique, so that swapped answers are detected."""
        return float(chance.randrange(_NUMBERS))

    def is_found(self, model: str, picture: str, records: object) -> bool:
        """Return whether these are the records of an image."""
        return same(records, self.references.records[model, picture])

    def is_answer(self, model: str, x: float) -> Callable[[object], bool]:
        """Whether a number is the answer to `x`: of a model that may answer now, or by the time of the answer."""
        before = self._addends(model)
        return lambda found: found in [x / 2 + addend for addend in before | self._addends(model)]

    def _addends(self, model: str) -> frozenset[float]:
        return self._shelf.allowed if model == REPLACED else frozenset({ADDENDS["two"]})


def metadata_of(number: str) -> str:
    """Custom metadata that only the request of this id has."""
    return f'[{{"key": "request", "type": "str", "value": "{number}"}}]'


def refused(answer: Answer) -> Outcome | None:
    """What came of a request that was not answered with 200; None for one that was."""
    if answer.status == 200:
        return None
    return Outcome(answer.status, answer.note or answer.body[:200].decode(errors="replace"))


def judged(answer: Answer, fault: Callable[[], str]) -> Outcome:
    """What came of one that was. An answer that cannot be read is a wrong one."""
    try:
        return Outcome(200, fault())
    except (KeyError, IndexError, TypeError, ValueError, msgspec.DecodeError) as error:
        said = answer.body[:200].decode(errors="replace")
        return Outcome(200, f"an answer that cannot be read ({type(error).__name__}: {error}): {said}")
