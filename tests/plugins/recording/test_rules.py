"""Rules of --record-when, and what they select beside the random sample."""

from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.token_bucket import Rate
from app.core.settings.server import SettingsError
from app.plugins.recording.inference import Selection
from app.plugins.recording.rules import Condition, Rule, RuleSelector, is_sampled, parse_rules
from tasks.image_classification import Classification
from tasks.inference.error import ErrorKind
from tasks.inference.response import InferenceResult, SampleResult
from tests.support.data.inference_events import detection_event, rejected_event


def classified(*scores: float) -> RequestContext:
    labels = ["cat", "dog", "cow"][: len(scores)]
    prediction = Classification(labels=labels, scores=np.array(scores, np.float32))
    sample = SampleResult(input=0, index=0, item=None, prediction=prediction)
    result = InferenceResult(outputs=(), batch_size=1, samples=[sample])
    return detection_event(result=result, task_type="IMAGE_CLASSIFICATION")


def test_rule_has_conditions_and_a_limit() -> None:
    text = "unsure: score > 0.3 and score <= 0.6 limit 100/hour ; far:similarity<0.25 limit 5/day;"
    scores = [Condition("score", ">", 0.3), Condition("score", "<=", 0.6)]
    assert parse_rules(text) == [
        Rule(name="unsure", conditions=scores, limit=Rate(per_second=100 / 3600, burst=100)),
        Rule(name="far", conditions=[Condition("similarity", "<", 0.25)], limit=Rate(per_second=5 / 86_400, burst=5)),
    ]
    assert parse_rules(" ") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score > 1", "got 'score > 1'"),
        ("a: score > 0; b: ", "got 'b:'"),
        ("a: score 0.3..0.6", "Expected rules such as unsure: score > 0.3 and"),
        ("a: score > 0.5 and", "got 'a: score > 0.5 and'"),
        ("a: score > 0.5 limit 5", "got 'a: score > 0.5 limit 5'"),
        ("a: count > 5", "with score, similarity or disagreement"),
        ("a: score > 'x'", "and a number"),
        ("a: score > 1; a: score > 2", "Expected other names than sample, trial, no-trial, any, each once, got a"),
        ("sample: score > 1", "Expected other names than sample, trial, no-trial, any, each once, got sample"),
    ],
)
def test_rule_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_rules(text)
    assert message in str(raised.value)


# The scores of the labels are 0.9, 0.7 and 0.5.
SHIPS = detection_event(labels=("ship", "quay", "ship"), similarities=[0.75, 0.25])
FAILED = rejected_event(ErrorKind.MODEL_FAILED)


@pytest.mark.parametrize(
    ("event", "rule", "matches"),
    [
        (SHIPS, "score > 0.6 and score < 0.8", True),
        (SHIPS, "score < 0.5", False),
        (SHIPS, "similarity < 0.3", True),
        (SHIPS, "similarity < 0.1", False),
        (SHIPS, "similarity < 0.3 and score > 0.8", True),
        (SHIPS, "similarity < 0.3 and score > 0.95", False),
        (classified(0.75, 0.25), "score < 0.5", False),
        (classified(0.375, 0.25), "score < 0.5", True),
        (FAILED, "score < 1", False),
    ],
)
def test_rule_matches_objects_the_best_class_and_failures(event: RequestContext, rule: str, matches: bool) -> None:
    (parsed,) = parse_rules(f"rule: {rule}")
    assert parsed.matches(event) is matches


def selector(rules: str, fraction: float, clock: Any = lambda: 0.0) -> RuleSelector:
    return RuleSelector(parse_rules(rules), fraction, CollectorRegistry(), clock)


def test_sample_stays_random_and_matching_requests_are_recorded_with_certainty() -> None:
    event, rng = detection_event(), np.random.default_rng(0)
    for probability, reason, rule in ((0.125, None, "sure: score > 0.95"), (1.0, "any-ship", "any-ship: score > 0.5")):
        select, reasons = selector(rule, 0.125), list[str | None]()
        for number in range(2000):
            # Ids of time and a random part, as the engine makes them.
            event.id = f"{number:012x}{rng.bytes(10).hex()}"
            selection = select(event)
            if is_sampled(event.id, 0.125):
                assert selection == Selection(probability=probability)
            if selection is not None:
                assert selection.probability == probability
                reasons.append(selection.reason)
        assert len(reasons) / probability == pytest.approx(2000, rel=0.1)
        assert {*reasons} == {None, reason}


def test_rule_on_disagreement_selects_after_the_shadow_answer_what_nothing_else_selected() -> None:
    select = selector("sure: score > 0.95; differs: score > 0.5 and disagreement > 1", 1e-9)
    ship, both, buoy = classified(0.75), classified(1.0), classified(0.25)
    # Whether the other rule selects the request as well is not known yet.
    assert [select(event) for event in (ship, both, buoy)] == [None, Selection(reason="sure"), None]
    assert [select.awaits_shadow(event) for event in (ship, both, buoy)] == [True, False, False]
    assert [select.after_shadow(ship, differing) for differing in (1, 2)] == [None, Selection(reason="differs")]


def test_limit_of_a_rule_refills_over_time_and_hides_the_probability() -> None:
    now = [0.0]
    select = selector("many: score > 0 limit 2/minute", 1e-9, lambda: now[0])
    events = [detection_event() for _ in range(9)]
    assert [select(event) for event in events[:3]] == [Selection(reason="many"), Selection(reason="many"), None]
    now[0] = 31.0
    assert [select(event) is not None for event in events[3:5]] == [True, False]
    now[0] = 1000.0
    assert [select(event) is not None for event in events[5:]] == [True, True, False, False]
