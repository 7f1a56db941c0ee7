"""Test the model as a server would run it."""

from pathlib import Path

import msgspec
import numpy as np

from charioteer import InProcessModel


def test_questions_about_colour_and_size_are_answered() -> None:
    image = np.full((48, 64, 3), (20, 30, 200), np.uint8)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    questions = ["Which colour is it?", "How large is it?"]
    answers = [msgspec.structs.asdict(record)["answer"] for record in model.ask(image, prompts=questions)]
    assert answers == ["mostly blue", "64 by 48 pixels"]
