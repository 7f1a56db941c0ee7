"""Select by rules what is recorded, beside the random sample."""

import logging
import math
import threading
import time
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter

from app.core.engine.request_context import RequestContext
from app.plugins.feedback.selection.rules import Rule
from app.plugins.recording.recorder import is_sampled
from app.plugins.recording.row_converter import Selection

_logger = logging.getLogger(__name__)


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
        self._rules = [(rule, _Bucket(rule, clock)) for rule in rules]
        self._fraction = fraction
        self._counter = Counter(
            "charioteer_record_rules",
            "Requests outside the random sample that matched a rule of --record-when: recorded, or over its limit.",
            ["rule", "outcome"],
            registry=metrics,
        )

    def __call__(self, event: RequestContext) -> Selection | None:
        """Return the reason and the probability with which requests like this one are recorded.

        The probability is None if a matching rule has a limit: it then depends on the other requests.
        """
        matching = [(rule, bucket) for rule, bucket in self._rules if _matches(rule, event)]
        missed = (1 - self._fraction) * math.prod(1 - rule.share for rule, _ in matching)
        probability = None if any(rule.limit for rule, _ in matching) else 1 - missed
        if is_sampled(event.id, self._fraction):
            return Selection(None, probability)
        for rule, bucket in matching:
            if rule.draws(event.id):
                is_free = bucket.take()
                self._counter.labels(rule.name, "recorded" if is_free else "limited").inc()
                if is_free:
                    return Selection(rule.name, probability)
        return None


def _matches(rule: Rule, event: RequestContext) -> bool:
    try:
        return rule.matches(event)
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
