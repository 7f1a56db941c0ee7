"""Sample tokens, and answer prompts with them: whole or streamed."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.engine.cancellation import raise_if_cancelled
from app.plugins.transformers.text.conversation import Conversation
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.image_text_to_text import Answers, PromptedImage
from tasks.inference.error import model_failed
from tasks.task import FinishReason, TextChunk, TokenUsage
from tasks.text.generation import SamplingParameters
from tasks.text_generation import ContinuedText, Generation

InputT = TypeVar("InputT", bound=PromptedImage | ContinuedText)
PredictionT = TypeVar("PredictionT")


class Sampler:
    """Samples the tokens of one answer. Temperature 0 selects the token with the highest score.

    The order is Hugging Face's: temperature, then top_k, then top_p. Without a seed every answer is different.
    """

    def __init__(self, parameters: SamplingParameters) -> None:
        self._parameters = parameters
        self._random = np.random.default_rng(parameters.seed) if parameters.temperature > 0 else None

    def pick(self, logits: NDArray[np.float32], /) -> int:
        """Return the id of the next token.

        Raise MODEL_FAILED if the highest score is not finite.
        """
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise model_failed(f"The model failed: the score of a token is {logits[best]}")
        if self._random is None:
            return best
        candidates = self._top_candidates(logits)
        scores = logits[candidates].astype(np.float64)
        with np.errstate(over="ignore"):
            weights = np.exp((scores - scores[0]) / self._parameters.temperature)
        return int(candidates[_draw(weights, self._parameters.top_p, self._random)])

    def _top_candidates(self, logits: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return the candidate token ids, highest score first."""
        count = self._parameters.top_k
        if count is None or count >= len(logits):
            return np.argsort(np.negative(logits), kind="stable")
        highest = np.argpartition(np.negative(logits), count - 1)[:count]
        return highest[np.argsort(np.negative(logits[highest]), kind="stable")]


# The quotes defer the import of NumPy's generators, which few servers need.
def _draw(weights: NDArray[np.float64], top_p: float, random: "np.random.Generator") -> int:
    """Draw an index of the descending `weights` from the first ones that sum to `top_p` of the total."""
    cumulative = np.cumsum(weights)
    nucleus_size = min(int(np.count_nonzero(cumulative < top_p * cumulative[-1])) + 1, len(weights))
    drawn = random.random() * cumulative[nucleus_size - 1]
    return min(int(np.count_nonzero(cumulative[:nucleus_size] <= drawn)), nucleus_size - 1)


class EncodedPrompt(msgspec.Struct, frozen=True, eq=False):
    """One prompt as the model reads it.

    Attributes:
        inputs: inputs of the model, whose type is the runtime's.
        token_count: number of its tokens, images included.
        context: its last tokens, if they determine the spelling of the answer.
    """

    inputs: Any
    token_count: int
    max_tokens: int
    context: Sequence[int] = ()


class AnswerTokens:
    """The tokens of one answer without end tokens. It can be iterated once, and ends with the request.

    Attributes:
        count: number of tokens so far, end tokens included.
        finish: why the answer ended, after its last token.
    """

    def __init__(self, tokens: Iterable[int], end_tokens: Collection[int]) -> None:
        self._tokens = tokens
        self._end_tokens = end_tokens
        self.count = 0
        self.finish: FinishReason = "length"

    def __iter__(self) -> Iterator[int]:
        for token in self._tokens:
            raise_if_cancelled()
            self.count += 1
            if token in self._end_tokens:
                self.finish = "stop"
            else:
                yield token


class GenerativeModel(ABC, Generic[InputT, PredictionT]):
    """A model of prompts that also streams its answers."""

    def __init__(self, tokenizer: Tokenizer, end_tokens: frozenset[int]) -> None:
        self._tokenizer = tokenizer
        self._end_tokens = end_tokens

    @abstractmethod
    def _encode(self, inputs: Sequence[InputT]) -> Iterable[Iterable[EncodedPrompt]]:
        """Validate all inputs, and return the prompts of each. They may be encoded when they are read."""

    @abstractmethod
    def _generate(self, inputs: Any, picker: Sampler, max_tokens: int) -> Generator[int]:
        """Yield the tokens of one answer with its end token; `inputs` are the ones of an `EncodedPrompt`."""

    @abstractmethod
    def _prediction(self, item: InputT, answers: Sequence[Generation]) -> PredictionT:
        """Return the prediction with the answer to each prompt of `item`."""

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        return [
            self._prediction(item, [self._answer(prompt, item.parameters) for prompt in prompts])
            for item, prompts in zip(inputs, self._encode(inputs), strict=True)
        ]

    def stream(self, inputs: Sequence[InputT], /) -> Generator[TextChunk]:
        """Stream the answers token by token. Each ends with an empty final chunk, since no token is known to be last.

        Raise INVALID_REQUEST for a prompt that the model cannot use.
        """
        return self._stream(inputs, self._encode(inputs))

    def _stream(self, inputs: Sequence[InputT], encoded: Iterable[Iterable[EncodedPrompt]]) -> Generator[TextChunk]:
        for index, (item, prompts) in enumerate(zip(inputs, encoded, strict=True)):
            for number, prompt in enumerate(prompts):
                with closing(self._generate(prompt.inputs, Sampler(item.parameters), prompt.max_tokens)) as tokens:
                    answer = AnswerTokens(tokens, self._end_tokens)
                    for text in self._tokenizer.decode_stream(answer, prompt.context):
                        usage = TokenUsage(prompt.token_count, answer.count)
                        yield TextChunk(item=index, prompt=number, text=text, usage=usage)
                    usage, finish = TokenUsage(prompt.token_count, answer.count), answer.finish
                    yield TextChunk(item=index, prompt=number, text="", final=True, usage=usage, finish=finish)

    def _answer(self, prompt: EncodedPrompt, parameters: SamplingParameters) -> Generation:
        with closing(self._generate(prompt.inputs, Sampler(parameters), prompt.max_tokens)) as tokens:
            answer = AnswerTokens(tokens, self._end_tokens)
            text = "".join(self._tokenizer.decode_stream(list(answer), prompt.context))
        return Generation(text, TokenUsage(prompt.token_count, answer.count), answer.finish)


class PromptedImageModel(GenerativeModel[PromptedImage, Answers]):
    """A `VisionLanguageModel` that generates its answers."""

    _conversation: Conversation

    def _encode(self, inputs: Sequence[PromptedImage]) -> Iterable[Iterable[EncodedPrompt]]:
        # Validate all prompts before the first image is encoded, which takes about a thousand times longer.
        return map(self._encode_item, inputs, [self._conversation.render_item(item) for item in inputs])

    @abstractmethod
    def _encode_item(self, item: PromptedImage, texts: Sequence[str]) -> Iterator[EncodedPrompt]:
        """Yield each prompt with its images."""

    def _prediction(self, item: PromptedImage, answers: Sequence[Generation]) -> Answers:
        return Answers(
            prompts=item.prompts,
            answers=[answer.text for answer in answers],
            usage=[answer.usage for answer in answers],
            finish=[answer.finish for answer in answers],
        )
