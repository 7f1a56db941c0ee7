"""Select by rules what is recorded, beside the random sample."""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence

from prometheus_client import CollectorRegistry, Counter

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.token_bucket import TokenBucket
from app.plugins.recording.inference import Selection
from app.plugins.recording.recorder import is_sampled
from app.plugins.recording.rules import Rule

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
        selection = self._select(event)
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
        matching = [rule for rule in self._late_rules if _matches(rule, event, differing)]
        return self._drawn(event, matching, None)

    def _select(self, event: RequestContext) -> Selection | None:
        matching = [rule for rule in self._rules if _matches(rule, event)]
        missed = (1 - self._fraction) * math.prod(1 - rule.share for rule in matching)
        is_unknown = any(rule.limit for rule in matching) or any(_matches(rule, event) for rule in self._late_rules)
        probability = None if is_unknown else 1 - missed
        if is_sampled(event.id, self._fraction):
            return Selection(probability=probability)
        return self._drawn(event, matching, probability)

    def _drawn(self, event: RequestContext, matching: Sequence[Rule], probability: float | None) -> Selection | None:
        for rule in matching:
            if rule.draws(event.id):
                with self._lock:
                    is_free = rule.limit is None or not self._buckets[rule.name].take(rule.limit, self._clock())
                self._counter.labels(rule.name, "recorded" if is_free else "limited").inc()
                if is_free:
                    return Selection(reason=rule.name, probability=probability)
        return None


def _matches(rule: Rule, event: RequestContext, differing: int | None = None) -> bool:
    try:
        return rule.matches(event, differing)
    except Exception:
        # Records of Python classes may have any form.
        _logger.exception("a rule of --record-when cannot be applied", extra={"rule": rule.name})
        return False
