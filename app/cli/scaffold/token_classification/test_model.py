"""What the model answers, as a server would have it answer."""

from pathlib import Path

import msgspec

from app.assembly.in_process import InProcessModel


def test_it_finds_names_and_numbers() -> None:
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    found = [msgspec.structs.asdict(each) for each in model.ask_text("In May we saw 3 ships off Dover.")]
    assert {(each["entity_group"], each["word"]) for each in found} == {
        ("NAME", "May"),
        ("NUMBER", "3"),
        ("NAME", "Dover"),
    }
