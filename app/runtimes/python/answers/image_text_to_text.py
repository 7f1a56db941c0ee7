"""Convert the return value of a vision-language model."""

from app.runtimes.python.answers.value_parsing import ClassNames, columns, describe, fields, invalid_answer, items, text
from tasks.image_text_to_text import Answers, PromptedImage

__all__ = ("read_answers",)


def read_answers(value: object, path: str, item: PromptedImage, labels: ClassNames) -> Answers:
    """Read the answers to the prompts of one image: strings, or records with prompt and answer.

    Raises:
        InferenceError: MODEL_FAILED with the path of an invalid value.
    """
    del labels
    count = len(item.prompts)
    if isinstance(value, str) and count == 1:
        value = [value]
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
    return Answers(prompts=item.prompts, answers=answers)
