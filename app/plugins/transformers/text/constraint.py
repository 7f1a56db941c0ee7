"""Hold answers to a JSON Schema while they are generated. llguidance decides which tokens may follow.

It bounds its own work: a schema, or a step, that costs more than its limits is an error. Only the time for patterns
that one text must all match grows without bound, so that their number is limited here.
"""

from collections.abc import Mapping
from functools import cached_property
from typing import Any, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.plugins.transformers.text.library import first_line
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.inference.error import InferenceError, invalid
from tasks.text.generation import JSON_SCHEMA, SamplingParameters

_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""One space after marks, as in OpenAI's answers. Free to choose, a weak model writes spaces until its last token."""

_LEXER_FUEL = 200_000
"""For a schema, about a second."""
_MAX_PATTERNS = 8
"""The time doubles with each: 8 take up to a second, 12 take five."""
_BRANCHES = {"$ref", "anyOf", "oneOf"}
_MERGED = {"additionalProperties", "format", "items", "pattern", "patternProperties", "prefixItems", "properties"}
"""Keywords that are merged into the branches beside them."""

_TEXT_OR_JSON = r"""
start: TEXT | json | ("<tool_call>" SPACE json SPACE "</tool_call>" SPACE)+
TEXT: /[^\s{\[<](.|\n)*/
SPACE: /[ \n]{0,9}/
json: %json """
"""A text, or JSON, also in the tags of models that were trained on Hermes' format of function calls."""


class Constraint:
    """Masks the scores of one answer's tokens. One thread may use it."""

    def __init__(self, matcher: Any, tokenizer: Any) -> None:
        self._matcher = matcher
        self._tokenizer = tokenizer

    def start(self) -> "Constraint":
        """Return the constraint of another answer."""
        return Constraint(self._matcher.deep_copy(), self._tokenizer)

    def mask(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return `logits` with -inf for the tokens that must not follow. Raise INVALID_REQUEST if none may follow."""
        bits = np.unpackbits(np.frombuffer(self._matcher.compute_bitmask(), np.uint8), bitorder="little")
        self.check()
        if np.count_nonzero(np.isfinite(logits)) == 1:
            # The model's own rules allow one token only, such as the one that starts its answers.
            return logits
        allowed = np.zeros(len(logits), bool)
        allowed[: len(bits)] = bits[: len(logits)]
        return np.where(allowed, logits, np.float32(-np.inf))

    def accept(self, token: int) -> None:
        """Add a token to the answer; special tokens are no part of it."""
        if not self._tokenizer.is_special_token(token):
            self._matcher.consume_token(token)

    def check(self) -> None:
        """Raise INVALID_REQUEST if the schema cannot be followed."""
        if self._matcher.is_error():
            reason = self._matcher.get_error().partition("\n")[0]
            if reason.startswith("NoExtension"):
                reason = "no value fits the schema, or the model's tokens cannot spell it"
            raise _rejection(reason)


class Grammars:
    """Compiles schemas for the tokens of one model. Several threads may use it."""

    def __init__(self, tokenizer: Tokenizer, end_tokens: frozenset[int]) -> None:
        self._own_tokenizer = tokenizer
        self._end_tokens = end_tokens

    def constraint(self, parameters: SamplingParameters) -> Constraint | None:
        """Return the constraint of an answer; None if the parameters have no schema.

        Raise INVALID_REQUEST, naming the parameter, for a schema or a tokenizer that cannot be used.
        """
        if parameters.json_schema is None:
            return None
        from llguidance import LLMatcher, LLParserLimits

        _check_patterns(parameters.json_schema)
        asked: Any = parameters.json_schema.get("x-guidance")
        options = {**(cast("dict[str, object]", asked) if isinstance(asked, dict) else {}), **_SPACES}
        schema = msgspec.json.encode({**parameters.json_schema, "x-guidance": options}).decode()
        if parameters.json_only:
            grammar = LLMatcher.grammar_from_json_schema(schema)
        else:
            grammar = LLMatcher.grammar_from_lark(_TEXT_OR_JSON + schema)
        limits = LLParserLimits(verbose_errors=False, initial_lexer_fuel=_LEXER_FUEL)
        matcher = LLMatcher(self._tokenizer, grammar, log_level=0, limits=limits)
        if not matcher.is_error():
            # Some schemas turn out to fit no value at the first token only.
            matcher.compute_bitmask()
        constraint = Constraint(matcher, self._tokenizer)
        constraint.check()
        return constraint

    @cached_property
    def _tokenizer(self) -> Any:
        from llguidance import LLTokenizer

        ends = [token for token in self._end_tokens if self._own_tokenizer.text_of(token) is not None]
        if not ends:
            raise _rejection("this model has no token that ends an answer")
        try:
            return LLTokenizer(self._own_tokenizer.to_json(), eos_token=ends)
        except ValueError as error:
            raise _rejection(f"the tokenizer of this model is not supported ({first_line(error)})") from None


def _check_patterns(schema: Mapping[str, Any]) -> None:
    """Reject a schema that merges schemas and has many patterns: one text may have to match all."""
    count, merges, nodes = 0, False, [cast("object", schema)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, dict):
            keys = cast("dict[str, object]", node).keys()
            count += len(keys & {"format", "pattern"}) + len(cast("Any", node).get("patternProperties") or ())
            merges |= "allOf" in keys or not (keys.isdisjoint(_BRANCHES) or keys.isdisjoint(_MERGED))
            nodes += cast("dict[str, object]", node).values()
        elif isinstance(node, list):
            nodes += cast("list[object]", node)
    if merges and count > _MAX_PATTERNS:
        kinds = "allOf, or with other keywords beside $ref, anyOf or oneOf"
        raise _rejection(f"expected at most {_MAX_PATTERNS} patterns and formats in a schema with {kinds}, got {count}")


def _rejection(reason: str) -> InferenceError:
    return invalid(f"The answer cannot be held to this schema: {reason}", JSON_SCHEMA)
