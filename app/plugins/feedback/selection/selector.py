"""Select by rules what is recorded, beside the random sample."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter

from app.core.engine.request_context import RequestContext
from app.plugins.feedback.selection.rules import Rule
from app.plugins.recording.recorder import is_sampled
from app.plugins.recording.row_converter import Selection

_logger = logging.getLogger(__name__)

_MAX_REMEMBERED = 1000
"""Selected requests that are remembered until observers receive them, which follows within a commit of the store."""


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
        buckets = [(rule, _Bucket(rule, clock)) for rule in rules]
        self._rules = [(rule, bucket) for rule, bucket in buckets if not rule.needs_shadow]
        self._late_rules = [(rule, bucket) for rule, bucket in buckets if rule.needs_shadow]
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
        selection = self._select(event)
        if selection is not None and self._late_rules:
            with self._lock:
                self._selected.append(event.id)
        return selection

    def awaits_shadow(self, event: RequestContext) -> bool:
        """Return whether a request that is not selected may be when a shadow version has answered."""
        with self._lock:
            is_selected = event.id in self._selected
        return not is_selected and any(_matches(rule, event) for rule, _ in self._late_rules)

    def after_shadow(self, event: RequestContext, differing: int) -> Selection | None:
        """Return why to record such a request, if the shadow version answers `differing` samples in another way."""
        matching = [(rule, bucket) for rule, bucket in self._late_rules if _matches(rule, event, differing)]
        return self._drawn(event, matching, None)

    def _select(self, event: RequestContext) -> Selection | None:
        matching = [(rule, bucket) for rule, bucket in self._rules if _matches(rule, event)]
        missed = (1 - self._fraction) * math.prod(1 - rule.share for rule, _ in matching)
        is_unknown = any(rule.limit for rule, _ in matching) or any(
            _matches(rule, event) for rule, _ in self._late_rules
        )
        probability = None if is_unknown else 1 - missed
        if is_sampled(event.id, self._fraction):
            return Selection(None, probability)
        return self._drawn(event, matching, probability)

    def _drawn(
        self, event: RequestContext, matching: "Sequence[tuple[Rule, _Bucket]]", probability: float | None
    ) -> Selection | None:
        for rule, bucket in matching:
            if rule.draws(event.id):
                is_free = bucket.take()
                self._counter.labels(rule.name, "recorded" if is_free else "limited").inc()
                if is_free:
                    return Selection(rule.name, probability)
        return None


def _matches(rule: Rule, event: RequestContext, differing: int | None = None) -> bool:
    try:
        return rule.matches(event, differing)
    except Exception:
        # Records of Python classes may have any form.
        _logger.exception("a rule of --record-when cannot be applied", extra={"rule": rule.name})
        return False


class _Bucket:
    """A token bucket with the limit of a rule: its whole limit at once, and then its rate."""

    def __init__(self, rule: Rule, clock: Callable[[], float]) -> None:
        self._limit, self._period, self._clock = rule.limit, rule.period, clock
        self._tokens, self._updated = float(rule.limit or 0), clock()
        self._lock = threading.Lock()

    def take(self) -> bool:
        """Take a token; return False if there is none."""
        if self._limit is None:
            return True
        with self._lock:
            now = self._clock()
            gained = (now - self._updated) * self._limit / self._period
            self._tokens, self._updated = min(self._limit, self._tokens + gained), now
            if self._tokens < 1:
                return False
            self._tokens -= 1
            return True
