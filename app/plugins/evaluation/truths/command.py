"""``charioteer truth``."""

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from app.core.cli.terminal import counted, error_console, printable, stop
from app.core.engine.error_text import list_choices
from app.core.settings.environment import HELP_FLAGS
from app.plugins.evaluation.dataset import EvaluationError
from app.plugins.evaluation.datasets.files import DatasetOptions
from app.plugins.evaluation.truths.importing import LabelFormat, read_labels
from app.plugins.evaluation.truths.matching import add_labels
from app.plugins.recording.stores.store import parse_dsn
from app.plugins.recording.truth_store import TruthStore

_REASONS = {
    "unknown": "no inference fits, by id, request id, SHA-256 or file name of the image",
    "ambiguous": "several images fit",
}

truth = App(name="truth", help_flags=HELP_FLAGS, help="Import labels as the truth of recorded inferences.")


@truth.command(name="import")
def import_truth(
    store: Annotated[str, Parameter(env_var="CHARIOTEER_RECORD")],
    file: Path,
    *,
    format: LabelFormat | None = None,  # noqa: A002
    images: Path | None = None,
    split: str | None = None,
    skip_bad: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Import labels as the truth of recorded inferences: of all inferences of their image with answers of this kind.

    Exits with 0 if at least one label was stored, with 1 if none was, and with 2 if the labels cannot be read.

    Args:
        store: Recording store (the value of --record): a file, or postgresql://USER@HOST/DATABASE.
        file: COCO, JSON of Label Studio, JSON lines, or a folder: YOLO, or one folder of images for each class.
        format: Format of the labels; detected by default.
        images: Folder of the images, if they are not at the format's usual location. COCO also works without images.
        split: Split of a YOLO data set; the first of val, test and train by default.
        skip_bad: Skip labels that cannot be used.
    """
    truths = TruthStore(parse_dsn(store))
    try:
        source, labels = read_labels(file, format, DatasetOptions(images=images, split=split, skip_bad=skip_bad))
        outcomes = add_labels(truths, labels)
    except EvaluationError as error:
        stop(str(error))
    finally:
        truths.close()
    stderr = error_console()
    stored = sum(len(outcome.ids) for outcome in outcomes if outcome.result == "matched")
    stderr.print(f"Stored the truth of {counted(stored, 'inference')}, from {counted(len(labels), source + ' label')}")
    for result, reason in _REASONS.items():
        left_out = [label for label, outcome in zip(labels, outcomes, strict=True) if outcome.result == result]
        if left_out:
            names = [one.name or one.id or one.request_id or one.digest or one.task for one in left_out]
            shown = printable(list_choices(map(str, names)))
            stderr.print(f"{counted(len(left_out), 'label')} left out, because {reason}: {shown}")
    for label, outcome in zip(labels, outcomes, strict=True):
        if outcome.error:
            stderr.print(f"Left out: {printable(label.name or label.id)}: {printable(outcome.error)}")
    if not stored:
        stop("no truth was stored", 1)
