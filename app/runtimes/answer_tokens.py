"""Count the tokens of an answer while they are generated."""

from collections.abc import Collection, Generator, Iterable, Iterator

from tasks.task import TextChunk, TokenUsage


class AnswerTokens:
    """The tokens of one answer without end tokens. It can be iterated once.

    Args:
        tokens: the generated tokens.
        prompt_count: number of tokens before the answer, images included.
        end_tokens: tokens that end an answer.
    """

    def __init__(self, tokens: Iterable[int], prompt_count: int, end_tokens: Collection[int]) -> None:
        self._tokens = tokens
        self._prompt_count = prompt_count
        self._end_tokens = end_tokens
        self._count = 0
        self.ended = False

    def __iter__(self) -> Iterator[int]:
        for token in self._tokens:
            self._count += 1
            if token in self._end_tokens:
                self.ended = True
            else:
                yield token

    @property
    def usage(self) -> TokenUsage:
        """Return the tokens so far, end tokens included."""
        return TokenUsage(self._prompt_count, self._count)


def answer_chunks(answer: AnswerTokens, texts: Iterable[str], item: int, prompt: int = 0) -> Generator[TextChunk]:
    """Yield the decoded `texts` of an answer, then an empty final chunk, since no token is known to be last."""
    for text in texts:
        yield TextChunk(item=item, prompt=prompt, text=text, usage=answer.usage)
    finish = "stop" if answer.ended else "length"
    yield TextChunk(item=item, prompt=prompt, text="", final=True, usage=answer.usage, finish=finish)
