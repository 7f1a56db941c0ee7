"""Rules of ``--record-when``: what is worth recording beside the random sample."""

import hashlib
import re
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.token_bucket import Rate
from app.core.settings.server import SettingsError
from app.plugins.recording.inference_query import ANY_ERROR, ANY_REASON, NO_TRIAL, RANDOM_SAMPLE, TRIAL
from app.plugins.recording.query.filters import COMPARISONS, CONDITION, unquote
from app.plugins.recording.stores.rows import field_of
from tasks.inference.error import ErrorKind, InferenceError
from tasks.task import BEST_ONLY

_NUMBERS = ("score", "margin", "count", "similarity", "disagreement")
_TEXTS = ("label", "error")
_RESERVED = (RANDOM_SAMPLE, TRIAL, NO_TRIAL, ANY_REASON)
_OF_RECORDS = ("score", "margin", "count", "label")
_SECONDS: Mapping[str, int] = {"minute": 60, "hour": 3600, "day": 86_400}
_NAME = re.compile(r"\s*(?P<name>[\w-]{1,64})\s*:")
_CONDITION = re.compile(rf"{CONDITION}(?P<more>(?<!\w)and\b)?", re.VERBOSE | re.DOTALL | re.IGNORECASE)
_END = re.compile(
    r"""\s*(?:limit\s+(?P<limit>[1-9][0-9]{0,6})\s*/\s*(?P<period>minute|hour|day)\b\s*)?
    (?:share\s+(?P<share>[0-9]*\.?[0-9]+)\s*)?(?:;|\Z)""",
    re.VERBOSE | re.IGNORECASE,
)
_EXAMPLE = "unsure: score > 0.3 and score < 0.6 limit 100/hour share 0.5"


class Condition(msgspec.Struct, frozen=True):
    """One condition."""

    # ``score``, ``margin``, ``count``, ``label``, ``similarity``, ``disagreement``, ``error``, or a key of metadata.
    key: str
    comparison: str  # ``=``, ``<``, ``<=``, ``>`` or ``>=``
    value: str | float  # text is compared with text, and a number with numbers
    is_metadata: bool = False  # whether `key` is a key of metadata

    def holds(self, value: object) -> bool:
        """Return whether a value meets the condition; values of another type never do."""
        if isinstance(value, bool) or isinstance(value, str) != isinstance(self.value, str):
            return False
        return isinstance(value, str | int | float) and bool(COMPARISONS[self.comparison](value, self.value))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. A request matches if one of its images, texts or calls does."""

    name: str  # the `reason` of what it selects
    conditions: Sequence[Condition]  # all must hold; those on ``label`` and ``score`` for the same record
    share: float = 1.0  # share of the matching requests that it selects, 0..1
    limit: Rate | None = None  # the rate of requests that it selects at most; None for no limit

    @property
    def needs_shadow(self) -> bool:
        """Return whether the rule compares the answer with that of a shadow version, which comes later."""
        return any(item.key == "disagreement" and not item.is_metadata for item in self.conditions)

    def matches(self, event: RequestContext, differing: int | None = None) -> bool:
        """Return whether all conditions hold for a finished request, with the records that its client gets.

        `differing` is the number of its samples that a shadow version answers in another way. Without it, those
        conditions count as met.
        """
        of_records = [item for item in self.conditions if item.key in _OF_RECORDS and not item.is_metadata]
        if not all(
            self._holds(condition, event, differing) for condition in self.conditions if condition not in of_records
        ):
            return False
        samples = event.result.samples if event.result and event.outcome is None else ()
        best_only = event.task_type in BEST_ONLY
        return not of_records or any(
            _match_records(of_records, sample.prediction.records(), best_only=best_only) for sample in samples
        )

    def draws(self, event_id: str) -> bool:
        """Return whether a matching request is in the share. A larger share includes every smaller one."""
        digest = hashlib.sha256(f"{event_id} {self.name}".encode()).digest()
        return int.from_bytes(digest[:6]) < self.share * 2**48

    def _holds(self, condition: Condition, event: RequestContext, differing: int | None) -> bool:
        if condition.is_metadata:
            entries = (entry for metadata in event.metadata for entry in metadata.entries)
            return any(condition.holds(entry.value) for entry in entries if entry.key == condition.key)
        if condition.key == "disagreement":
            return differing is None or condition.holds(differing)
        if condition.key == "error":
            return event.outcome is not None and condition.value in (ANY_ERROR, event.outcome.value)
        return any(number is not None and condition.holds(number) for number in event.similarities)


def _match_records(conditions: Sequence[Condition], records: Sequence[object], *, best_only: bool) -> bool:
    """Return whether one answer meets conditions; of classes, only the best has `label` and `score`."""
    for condition in conditions:
        if condition.key == "margin":
            scores = [field_of(record, "score") for record in records[:2]] if best_only else []
            if len(scores) < 2 or not condition.holds(cast("float", scores[0]) - cast("float", scores[1])):
                return False
    of_one = [condition for condition in conditions if condition.key in ("label", "score")]
    found = [
        record
        for record in (records[:1] if best_only else records)
        if all(condition.holds(field_of(record, condition.key)) for condition in of_one)
    ]
    counts = [condition for condition in conditions if condition.key == "count"]
    if counts:
        return all(condition.holds(len(found)) for condition in counts)
    return bool(found) or not of_one


def parse_rules(text: str) -> Sequence[Rule]:
    """Return the rules in the value of ``--record-when``.

    Raise SettingsError naming the rule and the part that cannot be read.
    """
    rules: list[Rule] = []
    position = 0
    while text[position:].strip():
        rule, position = _parse_rule(text, position)
        if rule.name in _RESERVED or rule.name in {other.name for other in rules}:
            raise SettingsError(
                f"--record-when: Expected other names than {', '.join(_RESERVED)}, each once, got {rule.name}"
            )
        rules.append(rule)
    return rules


def _parse_rule(text: str, position: int) -> tuple[Rule, int]:
    start = _NAME.match(text, position)
    if start is None:
        raise _expected("a name and a colon", text, position)
    conditions: list[Condition] = []
    position, more = start.end(), True
    while more:
        match = _CONDITION.match(text, position)
        if match is None:
            raise _expected("a condition", text, position)
        conditions.append(_condition(match))
        position, more = match.end(), match["more"] is not None
    end = _END.match(text, position)
    if end is None:
        raise _expected('"and", "limit 100/hour", "share 0.5" or a semicolon', text, position)
    share = float(end["share"] or 1)
    if not 0 < share <= 1:
        raise SettingsError(f"--record-when: {start['name']}: Expected a share above 0 and up to 1, got {end['share']}")
    limit = None
    if end["limit"] is not None:
        burst = int(end["limit"])
        limit = Rate(per_second=burst / _SECONDS[end["period"].lower()], burst=burst)
    return Rule(name=start["name"], conditions=conditions, share=share, limit=limit), end.end()


def _condition(match: re.Match[str]) -> Condition:
    key, comparison = match["key"], match["comparison"]
    try:
        name, value = str(unquote(key) if key[0] == '"' else key), unquote(match["value"])
    except InferenceError as error:
        raise SettingsError(f"--record-when: {error.message}") from None
    # A quoted key is always one of metadata.
    is_metadata = key[0] == '"' or name not in (*_NUMBERS, *_TEXTS)
    if not is_metadata:
        if name in _NUMBERS and isinstance(value, str):
            raise SettingsError(f"--record-when: Expected a number after {name} {comparison}, got {match['value']}")
        if name in _TEXTS and (not isinstance(value, str) or comparison != "="):
            raise SettingsError(f'--record-when: Expected {name} = "text", got {match[0].strip()}')
        if name == "error" and value not in (ANY_ERROR, *ErrorKind):
            allowed = ", ".join((ANY_ERROR, *ErrorKind))
            raise SettingsError(f"--record-when: Expected error = one of {allowed}, got {match['value']}")
    return Condition(name, comparison, value, is_metadata)


def _expected(what: str, text: str, position: int) -> SettingsError:
    return SettingsError(f"--record-when: Expected {what} at {text[position:].strip()!r}, such as {_EXAMPLE}")
