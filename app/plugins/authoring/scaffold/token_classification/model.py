"""A starter finder of numbers and names. Replace it with your model."""

import re

_PATTERNS = {"NUMBER": r"\d+([.,]\d+)*", "NAME": r"(?<=\w )[A-Z]\w+"}


class Model:
    """Finds numbers, and words with a capital letter that do not begin a sentence."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first text."""

    def predict(self, text: str) -> list[dict[str, object]]:
        """Return the named entities of one text."""
        return [
            {"entity_group": group, "score": 1.0, "start": match.start(), "end": match.end()}
            for group, pattern in _PATTERNS.items()
            for match in re.finditer(pattern, text)
        ]
