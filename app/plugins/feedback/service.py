"""Add truths to a server, and select what it records."""

from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from app.core.engine.engine import Engine
from app.core.engine.request_context import RequestContext
from app.core.hooks import Host, Parts
from app.core.settings.server import SettingsError
from app.plugins.feedback.settings import FeedbackSettings
from app.plugins.recording.service import MAX_QUERY_SECONDS, recorder_of, redacted_keys
from app.plugins.recording.settings import RecordingSettings

if TYPE_CHECKING:
    from app.plugins.feedback.selection.selector import RuleSelector
    from app.plugins.feedback.truths.routes import Truths
    from app.plugins.feedback.truths.truth_store import Outcome
    from app.plugins.recording.recorder import Selector

_served: "WeakKeyDictionary[Engine, Truths]" = WeakKeyDictionary()
"""The truths of each server, for plugins that receive labels."""
_selectors: "WeakKeyDictionary[Engine, RuleSelector]" = WeakKeyDictionary()


def start(host: Host) -> Parts:
    """Return the routes and the gauges of truths, if they are enabled.

    Raise SettingsError when settings contradict each other.
    """
    if not host.settings.of(FeedbackSettings).serve_truth:
        return Parts()
    recording = host.settings.of(RecordingSettings)
    if recording.record is None:
        raise SettingsError("--serve-truth needs --record")
    # Import late: servers without truths start faster.
    from app.plugins.feedback.truths.gauges import accuracy_gauges, count_verdicts
    from app.plugins.feedback.truths.routes import Truths
    from app.plugins.feedback.truths.truth_store import TruthStore
    from app.plugins.recording.row_converter import Redaction
    from app.plugins.recording.stores.store import parse_dsn

    truths = Truths(TruthStore(parse_dsn(recording.record), Redaction(redacted_keys(recording)), MAX_QUERY_SECONDS))
    _served[host.engine] = truths
    return Parts(
        handlers=truths.handlers,
        operations=truths.operations,
        lifespan=lambda: accuracy_gauges(host.metrics, lambda: truths.run(lambda store: store.run(count_verdicts))),
        close=truths.close,
    )


def annotation_writer(
    engine: Engine,
) -> "Callable[[Mapping[str, object], str, bool], Awaitable[Outcome | None]] | None":
    """Return `Truths.store_task` of a server; None if it stores no truths."""
    truths = _served.get(engine)
    return truths and truths.store_task


def create_selector(host: Host) -> "Selector | None":
    """Return the selector of a server with rules; None without rules.

    Raise SettingsError when a rule cannot be read, or has no effect.
    """
    text, recording = host.settings.of(FeedbackSettings).record_when, host.settings.of(RecordingSettings)
    if not text.strip():
        return None
    from app.plugins.feedback.selection.rules import parse_rules
    from app.plugins.feedback.selection.selector import RuleSelector

    rules = parse_rules(text)
    if recording.record is None:
        raise SettingsError("--record-when needs --record")
    if recording.record_sample == 1:
        message = "--record-when has no effect if everything is recorded; add --record-sample, such as 0.05"
        raise SettingsError(message)
    selector = _selectors[host.engine] = RuleSelector(rules, recording.record_sample, host.metrics)
    return selector


def watch_shadow(engine: Engine, context: RequestContext) -> Callable[[int], None] | None:
    """Return what records a request whose shadow answer selects it; None if that cannot change anything.

    It is called with the number of samples that the shadow version answers in another way.
    """
    selector, recorder = _selectors.get(engine), recorder_of(engine)
    if selector is None or recorder is None or not selector.awaits_shadow(context):
        return None
    # The engine drops the images of requests that have ended.
    kept = copy(context)

    def record(differing: int) -> None:
        if (selection := selector.after_shadow(kept, differing)) is not None:
            recorder.record_as(kept, selection)

    return record


SELECTORS = (create_selector,)
WATCHERS = (watch_shadow,)
ANNOTATIONS = (annotation_writer,)
