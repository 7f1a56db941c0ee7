"""Test the model as a server would run it."""

from pathlib import Path

import msgspec

from charioteer import InProcessModel


def test_names_and_numbers_are_found() -> None:
    model = InProcessModel(Path(__file__).parent, allow_code=True)
    entities = [msgspec.structs.asdict(entity) for entity in model.ask_text("In May we saw 3 ships off Dover.")]
    assert {(entity["entity_group"], entity["word"]) for entity in entities} == {
        ("NAME", "May"),
        ("NUMBER", "3"),
        ("NAME", "Dover"),
    }
