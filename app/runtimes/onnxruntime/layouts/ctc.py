"""Decode text recognition by connectionist temporal classification (CTC) as PaddleOCR exports it: [b, T, characters].

(``ppocr/postprocess/rec_postprocess.py``.) Take the best character at each of T steps from left to right, and drop
repetitions and blanks, which are character 0. The metadata key ``character`` lists the other characters, one per line,
followed by a space unless the file lists one. Images contain one line of text and are 48 pixels high.

The task is IMAGE_TEXT_TO_TEXT. The answer to every prompt is the recognised text.
"""

from collections.abc import Sequence
from functools import partial

from app.engine.models.model_metadata import Fact, Origin
from app.runtimes.onnxruntime.graph import RawOutputs
from app.runtimes.onnxruntime.images.dynamic_input import TextLine
from app.runtimes.onnxruntime.images.preprocessing import HALVES, PartialPreprocessing
from app.runtimes.onnxruntime.layouts.layout import GraphView, Layout, Match, TextDecoder
from tasks.task import TaskType

_NAME = "ctc"
_DEFAULTS = PartialPreprocessing(
    size=(48, 320),
    resize="line",
    interpolation="bilinear",
    antialias=False,
    dynamic_size=TextLine(height=48, min_width=320, max_width=3200),
    scale=1 / 255,
    mean=HALVES,
    std=HALVES,
    channel_order="BGR",
)


def _recognise(view: GraphView) -> Match | None:
    if len(view.outputs) != 1 or not view.outputs[0].is_float or view.outputs[0].blank.ndim != 3:
        return None
    declared_labels, metadata_characters = view.model_files.declared_labels, view.model_files.metadata.characters
    is_requested = view.declared_task is TaskType.IMAGE_TEXT_TO_TEXT or view.declared_layout == _NAME
    if metadata_characters is None and not (is_requested and declared_labels):
        return None
    count = view.outputs[0].shape[2]
    characters = _characters(declared_labels, metadata_characters, count)
    if characters is None:
        source = Origin.DECLARED if declared_labels else "the file's metadata"
        number = len(declared_labels) if declared_labels else len((metadata_characters or "").splitlines())
        raise view.model_files.error(
            f"its output has {count} characters including the blank, but {source} lists {number}; "
            f'declare the others as "labels" in model-settings.json'
        )
    fact = Fact("characters", str(len(characters)), Origin.DECLARED if declared_labels else Origin.MODEL_FILE)
    return Match(
        layout=_NAME,
        decoder=TextDecoder(partial(_read, characters=characters)),
        outputs=view.outputs,
        by_names=True,
        origin=Origin.DECLARED if declared_labels else Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        preprocessing=_DEFAULTS,
        facts=(fact,),
    )


def _characters(
    declared_labels: Sequence[str] | None, metadata_characters: str | None, count: int
) -> Sequence[str] | None:
    """Return the characters by number, starting with the blank; None if their count is wrong."""
    # The list may contain characters that Python treats as line ends, such as U+2028, and may end with a line end.
    text = (metadata_characters or "").replace("\r\n", "\n")
    lists = (
        [declared_labels] if declared_labels else [text.split("\n"), text.rstrip("\n").split("\n"), text.splitlines()]
    )
    for candidate in lists:
        for alphabet in (["", *candidate], ["", *candidate, " "]):
            if len(alphabet) == count:
                return alphabet
    return None


def _read(answer: RawOutputs, *, characters: Sequence[str]) -> str:
    steps: list[int] = answer.outputs[0].argmax(axis=1).tolist()
    previous = [0, *steps]
    return "".join(characters[step] for step, last in zip(steps, previous, strict=False) if step != last)


CTC = Layout(
    names=(_NAME,),
    task_types=(TaskType.IMAGE_TEXT_TO_TEXT,),
    expected_outputs="[b, T, characters]",
    recognise=_recognise,
)
