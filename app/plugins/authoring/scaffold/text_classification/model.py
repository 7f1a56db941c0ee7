"""A starter sentiment classifier. Replace it with your model."""

_GOOD = frozenset({"good", "great", "happy", "love", "nice", "well"})
_BAD = frozenset({"bad", "awful", "sad", "hate", "poor", "broken"})


class Model:
    """Scores whether a text has more positive or more negative words."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first text."""

    def predict(self, text: str) -> dict[str, float]:
        """Return the score of each label for one text."""
        words = [word.strip(".,;:!?") for word in text.lower().split()]
        good, bad = (sum(word in known for word in words) for known in (_GOOD, _BAD))
        # Add one to each count, so that no score is 0 or 1.
        positive = (good + 1) / (good + bad + 2)
        return {"positive": positive, "negative": 1 - positive}
