"""A parameter of inputs, and the output parameter that answers it."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta, Struct

from acme.words import acme_greeting
from charioteer.plugins import InferenceResult, RequestContext


class AcmeParameters(Struct, frozen=True, kw_only=True):
    """Greet a person in the output of an input."""

    greet: Annotated[str, Meta(min_length=1)] | None = None


class Greetings:
    """Add a greeting to the outputs whose inputs ask for it."""

    def __init__(self, greeting: str) -> None:
        self._greeting = greeting

    def __call__(
        self, context: RequestContext, result: InferenceResult, model_name: str, /
    ) -> Sequence[Mapping[str, object]]:
        names = {sample.input: sample.of(AcmeParameters).greet for sample in result.samples}
        return [{"greeting": acme_greeting(name, self._greeting)} if name else {} for name in names.values()]
