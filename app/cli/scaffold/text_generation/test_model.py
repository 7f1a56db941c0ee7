"""What the model answers, as a server would have it answer."""

from pathlib import Path

import msgspec

from app.assembly.in_process import InProcessModel


def test_it_goes_on_as_it_began() -> None:
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    (found,) = map(msgspec.structs.asdict, model.ask_text("the sea is calm and the", max_new_tokens=3))
    assert found["generated_text"].split() == ["sea", "is", "calm"]
