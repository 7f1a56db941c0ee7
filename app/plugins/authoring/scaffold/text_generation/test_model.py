"""Test the model as a server would run it."""

from pathlib import Path

import msgspec

from charioteer import InProcessModel


def test_repeated_text_is_continued() -> None:
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (generation,) = map(msgspec.structs.asdict, model.ask_text("the sea is calm and the", max_new_tokens=3))
    assert generation["generated_text"].split() == ["sea", "is", "calm"]
