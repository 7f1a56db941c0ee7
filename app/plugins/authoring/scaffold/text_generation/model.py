"""A starter text generator that repeats earlier words. Replace it with your model."""

from collections.abc import Iterator

from charioteer import TextGenerationParameters


class Model:
    """Continues a text with the word that followed its last word earlier in the text."""

    def load(self) -> None:
        """Load weights from `Path(__file__).parent`. Called once, before the first text."""

    def predict(self, text: str, parameters: TextGenerationParameters) -> Iterator[str]:
        """Yield the words that follow one text."""
        words = text.split() or ["nothing"]
        # Of several followers, keep the first: a dict keeps the last value, so insert in reverse.
        followers = dict(reversed([*zip(words, [*words[1:], words[0]], strict=True)]))
        word = words[-1]
        for _ in range(parameters.max_new_tokens):
            word = followers[word]
            yield f" {word}"
