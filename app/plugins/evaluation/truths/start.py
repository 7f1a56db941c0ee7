"""Compare truths that a server receives with its recorded answers."""

from typing import TYPE_CHECKING

from app.core.hooks import Host
from app.plugins.recording.api import TruthJudge

if TYPE_CHECKING:
    from app.plugins.recording.inference import RecordedInference, Truth
    from app.plugins.recording.truth_store import RightAnswer


def start(host: Host) -> None:
    """Provide the comparison."""
    host.provide(TruthJudge, _judge)


def _judge(inference: "RecordedInference", answer: "RightAnswer") -> "Truth":
    # Import late: servers without truths start faster.
    from app.plugins.evaluation.truths.judging import judge

    return judge(inference, answer)
