"""Rules of ``--record-when``: record what is worth labelling, beside the random sample."""

import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from prometheus_client import CollectorRegistry, Counter

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.token_bucket import Rate, TokenBucket
from app.core.settings.server import SettingsError
from app.plugins.recording.inference import Selection
from app.plugins.recording.inference_query import ANY_REASON, NO_TRIAL, RANDOM_SAMPLE, TRIAL
from app.plugins.recording.query.filters import COMPARISONS
from app.plugins.recording.stores.rows import field_of
from tasks.task import BEST_ONLY

_logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000
"""Selected requests that are remembered until observers receive them, which follows within a commit of the store."""

_RESERVED = (RANDOM_SAMPLE, TRIAL, NO_TRIAL, ANY_REASON)
_SECONDS = {"minute": 60, "hour": 3600, "day": 86_400}
_CONDITION = re.compile(r"\s*(score|similarity|disagreement)\s*(<=|>=|[=<>])\s*(-?[0-9]+(?:\.[0-9]+)?)\s*")
_RULE = re.compile(
    r"""\s*(?P<name>[\w-]{1,64})\s*:(?P<conditions>[^;]*?)
    (?:\blimit\s+(?P<limit>[1-9][0-9]{0,6})\s*/\s*(?P<period>minute|hour|day)\s*)?""",
    re.VERBOSE,
)
_SAMPLING_DIGITS = 8
_EXAMPLE = "unsure: score > 0.3 and score < 0.6 limit 100/hour"


def is_sampled(event_id: str, fraction: float) -> bool:
    """Return whether an event is in a sample of `fraction` (0..1). A larger sample includes every smaller one."""
    return int(event_id[-_SAMPLING_DIGITS:], 16) < fraction * 16**_SAMPLING_DIGITS


class Condition(msgspec.Struct, frozen=True):
    """A condition on ``score``, ``similarity`` or ``disagreement``."""

    key: str
    comparison: str  # ``=``, ``<``, ``<=``, ``>`` or ``>=``
    value: float

    def holds(self, value: object) -> bool:
        """Return whether a number meets the condition; other values never do."""
        return isinstance(value, int | float) and bool(COMPARISONS[self.comparison](value, self.value))


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. A request matches if one of its images does."""

    name: str  # the `reason` of what it selects
    conditions: Sequence[Condition]  # all must hold; those on ``score`` for the same record
    limit: Rate | None = None  # the rate of requests that it selects at most; None for no limit

    @property
    def needs_shadow(self) -> bool:
        """Return whether the rule compares the answer with a shadow version's, which comes later."""
        return any(condition.key == "disagreement" for condition in self.conditions)

    def matches(self, event: RequestContext, differing: int | None = None) -> bool:
        """Return whether a finished request meets the conditions.

        `differing` is the number of samples that a shadow version answers in another way. While it is None, conditions
        on ``disagreement`` count as met.
        """
        on_score = [condition for condition in self.conditions if condition.key == "score"]
        for condition in self.conditions:
            if condition.key == "similarity":
                if not any(condition.holds(similarity) for similarity in event.similarities):
                    return False
            elif condition.key == "disagreement" and differing is not None and not condition.holds(differing):
                return False
        return not on_score or any(all(condition.holds(score) for condition in on_score) for score in _scores_of(event))


def parse_rules(text: str) -> Sequence[Rule]:
    """Return the rules in the value of ``--record-when``.

    Raise SettingsError naming the rule that cannot be read.
    """
    rules: list[Rule] = []
    for part in filter(str.strip, text.split(";")):
        match = _RULE.fullmatch(part)
        conditions = match and [_CONDITION.fullmatch(one) for one in match["conditions"].split(" and ")]
        if match is None or conditions is None or None in conditions:
            raise SettingsError(
                f"--record-when: Expected rules such as {_EXAMPLE}, with score, similarity or disagreement and a"
                f" number, got {part.strip()!r}"
            )
        if match["name"] in _RESERVED or match["name"] in {rule.name for rule in rules}:
            other_names = f"other names than {', '.join(_RESERVED)}, each once"
            raise SettingsError(f"--record-when: Expected {other_names}, got {match['name']}")
        burst = int(match["limit"] or 0)
        limit = Rate(per_second=burst / _SECONDS[match["period"]], burst=burst) if burst else None
        found = [Condition(one[1], one[2], float(one[3])) for one in conditions if one]
        rules.append(Rule(name=match["name"], conditions=found, limit=limit))
    return rules


class RuleSelector:
    """Select a random sample, and of the other requests those that match a rule. Several threads may call it.

    The sample comes first, so that it stays a fair sample of all requests: what matches a rule is not missing there.

    Args:
        rules: the first that selects a request is its reason.
        fraction: the share of the random sample, 0..1.
        metrics: gets a counter.
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        rules: Sequence[Rule],
        fraction: float,
        metrics: CollectorRegistry,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rules = [rule for rule in rules if not rule.needs_shadow]
        self._late_rules = [rule for rule in rules if rule.needs_shadow]
        self._clock = clock
        self._buckets = {rule.name: TokenBucket(rule.limit, clock()) for rule in rules if rule.limit}
        self._selected: deque[str] = deque(maxlen=_MAX_REMEMBERED)
        self._lock = threading.Lock()
        self._fraction = fraction
        self._counter = Counter(
            "charioteer_record_rules",
            "Requests outside the random sample that matched a rule of --record-when: recorded, or over its limit.",
            ["rule", "outcome"],
            registry=metrics,
        )

    def __call__(self, event: RequestContext) -> Selection | None:
        """Return the reason and the probability with which requests like this one are recorded.

        The probability is None if a matching rule has a limit: it then depends on the other requests. It is None too
        if a rule may match when a shadow version has answered.
        """
        matching = [rule for rule in self._rules if _matches(rule, event)]
        is_unknown = any(rule.limit for rule in matching) or any(_matches(rule, event) for rule in self._late_rules)
        probability = None if is_unknown else 1.0 if matching else self._fraction
        is_random = is_sampled(event.id, self._fraction)
        selection = Selection(probability=probability) if is_random else self._first(matching, probability)
        if selection is not None and self._late_rules:
            with self._lock:
                self._selected.append(event.id)
        return selection

    def awaits_shadow(self, event: RequestContext) -> bool:
        """Return whether a request that is not selected may be when a shadow version has answered."""
        with self._lock:
            is_selected = event.id in self._selected
        return not is_selected and any(_matches(rule, event) for rule in self._late_rules)

    def after_shadow(self, event: RequestContext, differing: int) -> Selection | None:
        """Return why to record such a request, if the shadow version answers `differing` samples in another way."""
        return self._first([rule for rule in self._late_rules if _matches(rule, event, differing)], None)

    def _first(self, matching: Sequence[Rule], probability: float | None) -> Selection | None:
        for rule in matching:
            with self._lock:
                is_free = rule.limit is None or not self._buckets[rule.name].take(rule.limit, self._clock())
            self._counter.labels(rule.name, "recorded" if is_free else "limited").inc()
            if is_free:
                return Selection(reason=rule.name, probability=probability)
        return None


def _scores_of(event: RequestContext) -> Sequence[object]:
    """Return the scores of the records of an answer; of classes, only the best one."""
    samples = event.result.samples if event.result and event.outcome is None else ()
    end = 1 if event.task_type in BEST_ONLY else None
    return [field_of(record, "score") for sample in samples for record in sample.prediction.records()[:end]]


def _matches(rule: Rule, event: RequestContext, differing: int | None = None) -> bool:
    try:
        return rule.matches(event, differing)
    except Exception:
        # Records of Python classes may have any form.
        _logger.exception("a rule of --record-when cannot be applied", extra={"rule": rule.name})
        return False
