"""What the model answers, as a server would have it answer."""

from pathlib import Path

import msgspec
import numpy as np

from app.assembly.in_process import InProcessModel


def test_it_tells_colour_and_size() -> None:
    picture = np.full((48, 64, 3), (20, 30, 200), np.uint8)
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    questions = ["Which colour is it?", "How large is it?"]
    answers = [msgspec.structs.asdict(each)["answer"] for each in model.ask(picture, prompts=questions)]
    assert answers == ["mostly blue", "64 by 48 pixels"]
