"""The filters of recorded inferences, as options of a command and as parameters of a URL."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from cyclopts import Parameter

ANY_ERROR = "any"
NO_ERROR = "none"
RANDOM_SAMPLE = "sample"
TRIAL = "trial"
NO_TRIAL = "no-trial"
ANY_REASON = "any"


def _help(text: str) -> Parameter:
    return Parameter(help=text, negative="", show_default=False)


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class InferenceQuery:
    """Filters of recorded inferences. An inference must match every filter."""

    where: Annotated[
        Sequence[str],
        _help("""Condition on metadata, such as 'camera = "north"' or 'altitude > 100'; may be repeated."""),
    ] = ()
    since: Annotated[str | None, _help("From this time on: 2026-11-05T12:30:00Z, 2026-11-05, or 2h, 7d ago.")] = None
    until: Annotated[str | None, _help("Before this time.")] = None
    model: Annotated[str | None, _help("Model name.")] = None
    model_version: Annotated[str | None, _help("Version of the model.")] = None
    task_type: Annotated[str | None, _help("Task type of the model, such as OBJECT_DETECTION.")] = None
    protocol: Annotated[str | None, _help("Protocol name, such as chariot-v2-kserve.")] = None
    label: Annotated[str | None, _help("The model found this label.")] = None
    min_score: Annotated[float | None, _help("A finding (of the label) has at least this score.")] = None
    max_score: Annotated[float | None, _help("No finding (of the label) has a higher score.")] = None
    error: Annotated[str | None, _help("Kind of error, such as model_failed; or any, or none.")] = None
    truth: Annotated[str | None, _help("Has a truth: yes, no, or wrong if the answer was wrong.")] = None
    reason: Annotated[
        str | None,
        _help(
            "Why it was recorded: sample, a rule of --record-when by its name, or trial, as requests of the page; "
            "no-trial, as in exports; or any."
        ),
    ] = None
    request_id: Annotated[str | None, _help("Value of X-Request-ID.")] = None
    base_id: Annotated[str | None, _help("Chariot base id.")] = None
    digest: Annotated[str | None, _help("SHA-256 of the image.")] = None
