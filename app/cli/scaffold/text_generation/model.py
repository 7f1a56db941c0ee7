"""A writer that repeats itself, to be replaced by a better one."""

from collections.abc import Iterator

from tasks.text_generation import TextGenerationParameters

__all__ = ("Model",)


class Model:
    """Continues a text with the word that followed its last word when that came before."""

    def load(self) -> None:
        """Called once before the first text: the place to read weights, from `Path(__file__).parent`."""

    def predict(self, text: str, parameters: TextGenerationParameters) -> Iterator[str]:
        """The words that come after one text, one by one."""
        words = text.split() or ["nothing"]
        # Of several followers the first: what is put into a dict last stays.
        followers = dict(reversed([*zip(words, [*words[1:], words[0]], strict=True)]))
        word = words[-1]
        for _ in range(parameters.max_new_tokens):
            word = followers[word]
            yield f" {word}"
