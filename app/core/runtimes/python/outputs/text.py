"""Convert the return values of text generators and vision-language models.

The functions raise an `InferenceError` MODEL_FAILED with the path of the first invalid value.
"""

from collections.abc import Sequence
from typing import Any

from app.core.runtimes.python.outputs.value_parsing import (
    ClassNames,
    columns,
    describe,
    fields,
    invalid_answer,
    items,
    text,
)
from tasks.image_text_to_text import Answers, PromptedImage
from tasks.task import FinishReason, TokenUsage
from tasks.text_generation import ContinuedText, Generation


def read_generation(value: object, path: str, item: ContinuedText, labels: ClassNames) -> Generation:
    """Read the continuation of one text, without the text itself."""
    del item, labels
    if not isinstance(value, Generation):
        return Generation(text(value, path))
    (usage,), (finish,) = _usage([value.usage], path, 1), _finish([value.finish], path, 1)
    return Generation(text(value.text, path), usage=usage, finish=finish)


def read_answers(value: object, path: str, item: PromptedImage, labels: ClassNames) -> Answers:
    """Read the answers to the prompts of one image: strings, or records with prompt and answer."""
    del labels
    count, usage, finish = len(item.prompts), None, None
    if isinstance(value, str) and count == 1:
        value = [value]
    if isinstance(value, Answers) and value.usage is not None:
        usage = _usage(value.usage, path, count)
    if isinstance(value, Answers) and value.finish is not None:
        finish = _finish(value.finish, path, count)
    if (typed := fields(value, path, ("answers",))) is not None:
        value, path = typed["answers"]
    listed = items(value)
    if listed is None or len(listed) != count:
        raise invalid_answer(path, f"a list of {count} answers, one for each prompt", describe(value))
    if len(listed) and not isinstance(listed[0], str):
        if fields(listed[0], path, ("answer",)) is None:
            raise invalid_answer(f"{path}[0]", "a text, or a record with prompt and answer", describe(listed[0]))
        listed = columns(listed, path, ("prompt", "answer"))["answer"]
    answers = [text(answer, f"{path}[{index}]") for index, answer in enumerate(listed)]
    return Answers(prompts=item.prompts, answers=answers, usage=usage, finish=finish)


def _usage(value: object, path: str, count: int) -> Sequence[Any]:
    usage = items(value)
    if usage is None or len(usage) != count or not all(isinstance(entry, TokenUsage | None) for entry in usage):
        raise invalid_answer(f"{path}.usage", "TokenUsage for each prompt, or None", describe(value))
    return usage


def _finish(value: object, path: str, count: int) -> Sequence[FinishReason]:
    reasons = items(value)
    if reasons is None or len(reasons) != count or not all(reason in ("stop", "length") for reason in reasons):
        raise invalid_answer(f"{path}.finish", "'stop' or 'length' for each prompt", describe(value))
    return reasons
