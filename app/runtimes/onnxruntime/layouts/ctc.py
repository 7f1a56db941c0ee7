"""Decode text recognition by connectionist temporal classification (CTC) as PaddleOCR exports it: [b, T, characters].

(``ppocr/postprocess/rec_postprocess.py``.) Take the best character at each of T steps from left to right, and drop
repetitions and blanks, which are character 0. The metadata key ``character`` lists the other characters, one per line,
followed by a space unless the file lists one. Images contain one line of text and are 48 pixels high.

The task is IMAGE_TEXT_TO_TEXT. The answer to every prompt is the recognised text.
"""

from collections.abc import Sequence
from functools import partial

from app.engine.description import Fact, Origin
from app.runtimes.onnxruntime.conventions import Conventions
from app.runtimes.onnxruntime.elastic import Line
from app.runtimes.onnxruntime.graph import RawAnswer
from app.runtimes.onnxruntime.layouts.layout import Certainty, Layout, Match, ReadsText, View
from tasks.task import TaskType

__all__ = ("CTC",)

_NAME = "ctc"
_HALVES = (0.5, 0.5, 0.5)
_CONVENTIONS = Conventions(
    size=(48, 320),
    resize="pad",
    elastic=Line(height=48, narrowest=320, widest=3200),
    # Padding is 0 after normalisation.
    fill=127,
    scale=1 / 255,
    mean=_HALVES,
    std=_HALVES,
    bgr=True,
)


def _recognise(view: View) -> Match | None:
    if len(view.outputs) != 1 or not view.outputs[0].is_float or view.outputs[0].blank.ndim != 3:
        return None
    declared, listed = view.evidence.settings.labels, view.evidence.metadata.characters
    wanted = view.told is TaskType.IMAGE_TEXT_TO_TEXT or view.declared == _NAME
    if listed is None and not (wanted and declared):
        return None
    count = view.outputs[0].shape[2]
    characters = _characters(declared, listed, count)
    if characters is None:
        source = Origin.DECLARED if declared else "the file's metadata"
        number = len(declared) if declared else len((listed or "").splitlines())
        raise view.evidence.error(
            f"its output has {count} characters including the blank, but {source} lists {number}; "
            f'declare the others as "labels" in model-settings.json'
        )
    fact = Fact("characters", str(len(characters)), Origin.DECLARED if declared else Origin.MODEL_FILE)
    return Match(
        layout=_NAME,
        task_type=TaskType.IMAGE_TEXT_TO_TEXT,
        reading=ReadsText(partial(_read, characters=characters)),
        outputs=view.outputs,
        certainty=Certainty.NAMES,
        origin=Origin.DECLARED if declared else Origin.MODEL_FILE,
        task_origin=Origin.MODEL_FILE,
        conventions=_CONVENTIONS,
        facts=(fact,),
    )


def _characters(declared: Sequence[str] | None, listed: str | None, count: int) -> Sequence[str] | None:
    """Return the characters by number, starting with the blank; None if their count is wrong."""
    # The list may contain characters that Python treats as line ends, such as U+2028, and may end with a line end.
    text = (listed or "").replace("\r\n", "\n")
    lists = [declared] if declared else [text.split("\n"), text.rstrip("\n").split("\n"), text.splitlines()]
    for given in lists:
        for found in (["", *given], ["", *given, " "]):
            if len(found) == count:
                return found
    return None


def _read(answer: RawAnswer, *, characters: Sequence[str]) -> str:
    steps: list[int] = answer.outputs[0].argmax(axis=1).tolist()
    previous = [0, *steps]
    return "".join(characters[step] for step, last in zip(steps, previous, strict=False) if step != last)


CTC = Layout(
    names=(_NAME,), task_types=(TaskType.IMAGE_TEXT_TO_TEXT,), wants="[b, T, characters]", recognise=_recognise
)
