"""Test the model as a server would run it."""

from pathlib import Path

import msgspec

from charioteer import InProcessModel


def test_good_words_are_positive() -> None:
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    best, other = map(msgspec.structs.asdict, model.ask_text("A great day, and nice!"))
    assert best == {"label": "positive", "score": 0.75}
    assert other == {"label": "negative", "score": 0.25}
