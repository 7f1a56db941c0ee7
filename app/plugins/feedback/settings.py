"""Options of `serve` for truths and for rules of recording, and options of other commands."""

from dataclasses import dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter
from cyclopts.types import PositiveInt

from app.core.settings.environment import environment

_RECORDING = Group("Recording", sort_key=6)


@Parameter(name="*", group=_RECORDING)
@dataclass(frozen=True, kw_only=True)
class FeedbackSettings:
    """Truths of recorded inferences, and rules that select what to record."""

    serve_truth: Annotated[bool, environment("CHARIOTEER_SERVE_TRUTH")] = False
    """Whether clients with the permission label may send truths of recorded inferences."""

    record_when: Annotated[str, environment("CHARIOTEER_RECORD_WHEN", show=True)] = ""
    """Rules of what to record beside the random sample, separated by semicolons, such as 'unsure: score > 0.3 and
    score < 0.6 limit 100/hour'."""


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class TruthOptions:
    """Which inferences to measure by the truths of --recorded."""

    reason: Annotated[
        str, Parameter(help="Without a data set: inferences of the random sample, of a rule by its name, or any.")
    ] = "sample"


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class PickOptions:
    """Which of the inferences that match to show or export."""

    pick: Annotated[
        tuple[PositiveInt, Literal["diverse"]] | None,
        Parameter(
            help="Only this number of inferences, whose stored images differ most: 100 diverse.", show_default=False
        ),
    ] = None
