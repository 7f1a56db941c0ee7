"""Rules of --record-when, and what they select beside the random sample."""

from typing import Any

import numpy as np
import pytest
from prometheus_client import CollectorRegistry

from app.core.engine.request_context import RequestContext
from app.core.engine.scheduling.token_bucket import Rate
from app.core.settings.server import SettingsError
from app.plugins.recording.inference import Selection
from app.plugins.recording.recorder import is_sampled
from app.plugins.recording.rules import Condition, Rule, parse_rules
from app.plugins.recording.selector import RuleSelector
from tasks.image_classification import Classification
from tasks.inference.error import ErrorKind
from tasks.inference.response import InferenceResult, SampleResult
from tests.support.data.inference_events import detection_event, rejected_event

CAMERA = [{"key": "camera", "type": "str", "value": "north"}, {"key": "score", "type": "int", "value": "7"}]


def classified(*scores: float) -> RequestContext:
    labels = ["cat", "dog", "cow"][: len(scores)]
    prediction = Classification(labels=labels, scores=np.array(scores, np.float32))
    sample = SampleResult(input=0, index=0, item=None, prediction=prediction)
    result = InferenceResult(outputs=(), batch_size=1, samples=[sample])
    return detection_event(result=result, task_type="IMAGE_CLASSIFICATION")


def test_rule_has_conditions_a_limit_and_a_share() -> None:
    text = """unsure: score > 0.3 and score <= 0.6 limit 100/hour share 0.5 ; north:camera = "a; b" AND "score">=7
        limit 5/day;"""
    scores = [Condition("score", ">", 0.3), Condition("score", "<=", 0.6)]
    metadata = [Condition("camera", "=", "a; b", True), Condition("score", ">=", 7, True)]
    assert parse_rules(text) == [
        Rule(name="unsure", conditions=scores, share=0.5, limit=Rate(per_second=100 / 3600, burst=100)),
        Rule(name="north", conditions=metadata, limit=Rate(per_second=5 / 86_400, burst=5)),
    ]
    assert parse_rules(" ") == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("score > 1", "Expected a name and a colon at 'score > 1', such as unsure: "),
        ("a: ", "Expected a condition at ''"),
        ("a: score 0.3..0.6", "Expected a condition at 'score 0.3..0.6'"),
        ("a: score > 0.5 and", "Expected a condition at ''"),
        ("a: score > 0.5 limit 5", """Expected "and", "limit 100/hour", "share 0.5" or a semicolon at 'limit 5'"""),
        ("a: score > 0.5 share 2", "a: Expected a share above 0 and up to 1, got 2"),
        ("a: score > 'x'", "Expected a number after score >, got 'x'"),
        ("a: label > 'x'", """Expected label = "text", got label > 'x'"""),
        ("a: error = 'bad'", "Expected error = one of any, invalid_request"),
        ("a: count > 1; a: count > 2", "Expected other names than sample, trial, no-trial, any, each once, got a"),
        ("sample: count > 1", "Expected other names than sample, trial, no-trial, any, each once, got sample"),
    ],
)
def test_rule_that_cannot_be_read_is_named(text: str, message: str) -> None:
    with pytest.raises(SettingsError) as raised:
        parse_rules(text)
    assert message in str(raised.value)


# The scores of the labels are 0.9, 0.7 and 0.5.
SHIPS = detection_event(labels=("ship", "quay", "ship"), metadata=CAMERA, similarities=[0.75, 0.25])
FAILED = rejected_event(ErrorKind.MODEL_FAILED)


@pytest.mark.parametrize(
    ("event", "rule", "matches"),
    [
        (SHIPS, "score > 0.6 and score < 0.8", True),
        (SHIPS, "score < 0.5", False),
        (SHIPS, 'label = "quay" and score < 0.8', True),
        (SHIPS, 'label = "quay" and score > 0.8', False),
        (SHIPS, "count > 2", True),
        (SHIPS, 'label = "ship" and count > 2', False),
        (SHIPS, 'label = "crane" and count = 0', True),
        (SHIPS, "score > 0.6 and count = 2", True),
        (SHIPS, 'camera = "north"', True),
        (SHIPS, "camera = 3", False),
        (SHIPS, 'camera = "north" and count > 3', False),
        (SHIPS, '"score" = 7', True),
        (SHIPS, "similarity < 0.3", True),
        (SHIPS, "similarity < 0.1", False),
        (SHIPS, 'error = "any"', False),
        (SHIPS, "margin < 1", False),
        (classified(0.5, 0.375, 0.125), "margin < 0.2", True),
        (classified(0.75, 0.25), "margin < 0.2", False),
        (classified(1.0), "margin < 0.2", False),
        (classified(0.75, 0.25), "score < 0.5", False),
        (classified(0.75, 0.25), 'label = "dog"', False),
        (FAILED, 'error = "model_failed"', True),
        (FAILED, 'error = "any"', True),
        (FAILED, 'error = "overloaded"', False),
        (FAILED, "count = 0", False),
    ],
)
def test_rule_matches_objects_the_best_class_and_failures(event: RequestContext, rule: str, matches: bool) -> None:
    (parsed,) = parse_rules(f"rule: {rule}")
    assert parsed.matches(event) is matches


def selector(rules: str, fraction: float, clock: Any = lambda: 0.0) -> RuleSelector:
    return RuleSelector(parse_rules(rules), fraction, CollectorRegistry(), clock)


def test_weights_of_selected_requests_estimate_the_number_of_all() -> None:
    select = selector('ships: label = "ship" share 0.5; quays: label = "quay" share 0.25', 0.125)
    events = [detection_event(labels=labels) for labels in (["ship"], ["ship", "quay"], ["buoy"])]
    rng, selections = np.random.default_rng(0), [list[Selection]() for _ in events]
    for number in range(2000):
        for event, selected in zip(events, selections, strict=True):
            # Ids of time and a random part, as the engine makes them.
            event.id = f"{number:012x}{rng.bytes(10).hex()}"
            selection = select(event)
            if is_sampled(event.id, 0.125):
                assert selection is not None
                assert selection.reason is None
            selected += [] if selection is None else [selection]
    for found, expected in zip(selections, (1 - 0.875 * 0.5, 1 - 0.875 * 0.5 * 0.75, 0.125), strict=True):
        assert {selection.probability for selection in found} == {expected}
        assert len(found) / expected == pytest.approx(2000, rel=0.1)
    assert {selection.reason for selection in selections[1]} == {None, "ships", "quays"}
    assert {selection.reason for selection in selections[2]} == {None}


def test_rule_on_disagreement_selects_after_the_shadow_answer_what_nothing_else_selected() -> None:
    select = selector('quays: label = "quay"; differs: label = "ship" and disagreement > 1', 1e-9)
    ship, both, buoy = (detection_event(labels=labels) for labels in (["ship"], ["ship", "quay"], ["buoy"]))
    # Whether the other rule selects the request as well is not known yet.
    assert [select(event) for event in (ship, both, buoy)] == [None, Selection(reason="quays"), None]
    assert [select.awaits_shadow(event) for event in (ship, both, buoy)] == [True, False, False]
    assert [select.after_shadow(ship, differing) for differing in (1, 2)] == [None, Selection(reason="differs")]


def test_limit_of_a_rule_refills_over_time_and_hides_the_probability() -> None:
    now = [0.0]
    select = selector("many: count > 0 limit 2/minute", 1e-9, lambda: now[0])
    events = [detection_event() for _ in range(9)]
    assert [select(event) for event in events[:3]] == [Selection(reason="many"), Selection(reason="many"), None]
    now[0] = 31.0
    assert [select(event) is not None for event in events[3:5]] == [True, False]
    now[0] = 1000.0
    assert [select(event) is not None for event in events[5:]] == [True, True, False, False]
