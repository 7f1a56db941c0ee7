"""Define kinds of requests, their content, and the check of each answer."""

import base64
import random
from collections.abc import Awaitable, Callable

import msgspec

from tests.soak.model_repository import ADDENDS, BREAKABLE, ISOLATED, MOVABLE, REPLACED, UNLOADED, ModelRepository
from tests.soak.references import IMAGES, QUESTIONS, ROOT, References, is_close
from tests.soak.wire import Answer, Wire


class Outcome(msgspec.Struct, frozen=True):
    """The result of a request.

    Attributes:
        status: as an HTTP status; 0 for no answer.
        note: the error in an answer, or the message of an error status.
    """

    status: int
    note: str = ""


Send = Callable[[Wire, str, random.Random], Awaitable[Outcome]]
"""Sends a request with an id, and checks the answer."""

NUMBER_MODELS = ("half_plus_two", UNLOADED, REPLACED, BREAKABLE, MOVABLE, ISOLATED)
"""Models whose input is a number."""
_NUMBERS = 1 << 20
"""Below this, integers, their halves and the expected sums are exact in FP32."""


class RequestKind(msgspec.Struct, frozen=True, kw_only=True):
    """A kind of request.

    Attributes:
        surface: the protocol and its encoding.
        model: the requested model.
        weight: relative frequency.
        send: sends it.
        rows: rows that the store must have once it is answered.
        max_open: the largest number of open requests of its surface; above it another kind is sent. None for no limit.
    """

    surface: str
    model: str
    weight: float
    send: Send
    rows: int = 1
    max_open: int | None = None


class RequestMaterial:
    """Images, questions and numbers for requests.

    Args:
        references: the right answers.
        repository: the models; one is replaced from time to time.

    Attributes:
        references: the right answers.
        images: encoded images, by name.
        texts: the images in base64.
    """

    def __init__(self, references: References, repository: ModelRepository) -> None:
        self.references = references
        self.images = {name: (ROOT / "fixtures" / "images" / name).read_bytes() for name in IMAGES}
        self.texts = {name: base64.b64encode(data).decode() for name, data in self.images.items()}
        self._repository = repository

    def image_name(self, chance: random.Random) -> str:
        """Return the name of an image."""
        return chance.choice(IMAGES)

    def question(self, chance: random.Random) -> str:
        """Return a question about the first image."""
        return chance.choice(QUESTIONS)

    def number(self, chance: random.Random) -> float:
        """Return a number that is probably unique, so that swapped answers are detected."""
        return float(chance.randrange(_NUMBERS))

    def is_expected(self, model: str, image_name: str, records: object) -> bool:
        """Return whether these are the records of an image."""
        return is_close(records, self.references.records[model, image_name])

    def is_answer(self, model: str, x: float) -> Callable[[object], bool]:
        """Return a check for the answer to `x`; a version that is replaced meanwhile may answer too."""
        before = self._addends(model)
        return lambda value: value in [x / 2 + addend for addend in before | self._addends(model)]

    def _addends(self, model: str) -> frozenset[float]:
        return self._repository.allowed if model == REPLACED else frozenset({ADDENDS["two"]})


def metadata_of(number: str) -> str:
    """Return metadata that is unique to the request id."""
    return f'[{{"key": "request", "type": "str", "value": "{number}"}}]'


def refusal_of(answer: Answer) -> Outcome | None:
    """Return the outcome of a response with an error status; None for status 200."""
    if answer.status == 200:
        return None
    return Outcome(answer.status, answer.note or answer.body[:200].decode(errors="replace"))


def check_answer(answer: Answer, fault: Callable[[], str]) -> Outcome:
    """Return the outcome of a response with status 200; an unreadable answer is wrong."""
    try:
        return Outcome(200, fault())
    except (KeyError, IndexError, TypeError, ValueError, msgspec.DecodeError) as error:
        body_text = answer.body[:200].decode(errors="replace")
        return Outcome(200, f"an answer that cannot be read ({type(error).__name__}: {error}): {body_text}")
