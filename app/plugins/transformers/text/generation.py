"""Sample tokens, and answer prompts with them: whole or streamed."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Sequence
from contextlib import closing
from typing import Any, Generic, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from app.core.engine.cancellation import raise_if_cancelled
from app.plugins.transformers.grounding.forms import Form, read_grounding
from app.plugins.transformers.text.constraint import Constraint, Grammars
from app.plugins.transformers.text.conversation import Conversation
from app.plugins.transformers.text.tokenizer import Tokenizer
from tasks.image_text_to_text import Answers, Grounding, ImageTextToText, PromptedImage
from tasks.inference.error import model_failed
from tasks.task import FinishReason, TextChunk, TokenUsage
from tasks.text.generation import SamplingParameters
from tasks.text.stopping import ChunkCollector
from tasks.text_generation import ContinuedText

InputT = TypeVar("InputT", bound=PromptedImage | ContinuedText)
PredictionT = TypeVar("PredictionT")


class Sampler:
    """Samples the tokens of one answer. Temperature 0 selects the token with the highest score.

    The order is Hugging Face's: temperature, then top_k, then top_p. Without a seed every answer is different. A
    `constraint` excludes tokens first. If it is `scored`, `probabilities` has the probability of each token so far, at
    temperature 1.
    """

    def __init__(
        self, parameters: SamplingParameters, constraint: Constraint | None = None, *, scored: bool = False
    ) -> None:
        self._parameters = parameters
        self._constraint = constraint
        self._scored = scored
        self.probabilities: list[float] = []
        self._random = np.random.default_rng(parameters.seed) if parameters.temperature > 0 else None

    def pick(self, logits: NDArray[np.float32], /) -> int:
        """Return the id of the next token.

        Raise MODEL_FAILED if the highest score is not finite.
        """
        if self._constraint is not None:
            logits = self._constraint.mask(logits)
        best = int(np.argmax(logits))
        if not np.isfinite(logits[best]):
            raise model_failed(f"The model failed: the score of a token is {logits[best]}")
        token = best if self._random is None else self._sample(logits, self._random)
        if self._scored:
            weights = np.exp(logits - logits[best])
            self.probabilities.append(float(weights[token] / weights.sum()))
        if self._constraint is not None:
            self._constraint.accept(token)
        return token

    # The quotes defer the import of NumPy's generators, which few servers need.
    def _sample(self, logits: NDArray[np.float32], random: "np.random.Generator") -> int:
        candidates = self._top_candidates(logits)
        scores = logits[candidates].astype(np.float64)
        with np.errstate(over="ignore"):
            cumulative = np.cumsum(np.exp((scores - scores[0]) / self._parameters.temperature))
        nucleus = cumulative[: int(cumulative.searchsorted(self._parameters.top_p * float(cumulative[-1]))) + 1]
        drawn = int(nucleus.searchsorted(random.random() * float(nucleus[-1]), side="right"))
        return int(candidates[min(drawn, len(nucleus) - 1)])

    def _top_candidates(self, logits: NDArray[np.float32]) -> NDArray[np.intp]:
        """Return the candidate token ids, highest score first."""
        count = self._parameters.top_k
        if count is None or count >= len(logits):
            return np.argsort(np.negative(logits), kind="stable")
        highest = np.argpartition(np.negative(logits), count - 1)[:count]
        return highest[np.argsort(np.negative(logits[highest]), kind="stable")]


TokenGenerator = Callable[[Any, Sampler, int], Generator[int]]


class EncodedPrompt(msgspec.Struct, frozen=True, eq=False):
    """One prompt as the model reads it.

    Attributes:
        inputs: inputs of the model, whose type is the runtime's.
        token_count: number of its tokens, images included.
        context: its last tokens, if they determine the spelling of the answer.
        input_size: (width, height) to which its only image was resized, pixels; None if that is not known.
    """

    inputs: Any
    token_count: int
    max_tokens: int
    context: Sequence[int] = ()
    input_size: tuple[int, int] | None = None


class AnswerTokens:
    """The tokens of one answer, without its end token. It can be iterated once, and ends with the request.

    Attributes:
        ids: the tokens so far.
        finish: why the answer ended, after its last token.
    """

    def __init__(self, tokens: Iterable[int], end_tokens: Collection[int]) -> None:
        self._tokens = tokens
        self._end_tokens = end_tokens
        self.ids: list[int] = []
        self.finish: FinishReason = "length"

    def __iter__(self) -> Iterator[int]:
        for token in self._tokens:
            raise_if_cancelled()
            if token in self._end_tokens:
                self.finish = "stop"
                return
            self.ids.append(token)
            yield token

    def usage(self, prompt: EncodedPrompt) -> TokenUsage:
        """Return the number of tokens of the prompt and of the answer so far, its end token included."""
        return TokenUsage(prompt.token_count, len(self.ids) + (self.finish == "stop"))


class GenerativeModel(ABC, Generic[InputT, PredictionT]):
    """A model of prompts that also streams its answers.

    Args:
        gather: makes the prediction for an input from the answers to its prompts.
        generate: yields the tokens of one answer, at least up to its end token, from the inputs of an `EncodedPrompt`
            and the maximum number of tokens.
        tokenizer: decodes the tokens of answers.
        end_tokens: each ends an answer.

    Attributes:
        form: how its answers print places in an image; None if they do not.
    """

    def __init__(
        self,
        gather: Callable[[InputT, Sequence[TextChunk]], PredictionT],
        generate: TokenGenerator,
        tokenizer: Tokenizer,
        end_tokens: frozenset[int],
    ) -> None:
        self.form: Form | None = None
        self._gather, self._generate = gather, generate
        self._tokenizer = tokenizer
        self._end_tokens = end_tokens
        self._grammars = Grammars(tokenizer, end_tokens)

    @abstractmethod
    def _encode(self, inputs: Sequence[InputT]) -> Iterable[Iterable[EncodedPrompt]]:
        """Validate all inputs, and return the prompts of each. They may be encoded when they are read."""

    def __call__(self, inputs: Sequence[InputT], /) -> Sequence[PredictionT]:
        collector = ChunkCollector()
        for chunk in self.stream(inputs):
            collector.add(chunk)
        answers = collector.answers
        return [self._gather(item, answers[index]) for index, item in enumerate(inputs)]

    def stream(self, inputs: Sequence[InputT], /) -> Generator[TextChunk]:
        """Stream the answers token by token. Each ends with an empty final chunk, since no token is known to be last.

        Raise INVALID_REQUEST for a prompt that the model cannot use.
        """
        constraints = [self._grammars.constraint(item.parameters) for item in inputs]
        return self._stream(inputs, constraints, self._encode(inputs))

    def _stream(
        self,
        inputs: Sequence[InputT],
        constraints: Sequence[Constraint | None],
        encoded: Iterable[Iterable[EncodedPrompt]],
    ) -> Generator[TextChunk]:
        for index, (item, constraint, prompts) in enumerate(zip(inputs, constraints, encoded, strict=True)):
            for number, prompt in enumerate(prompts):
                sampler = Sampler(item.parameters, constraint and constraint.start(), scored=self.form is not None)
                with closing(self._generate(prompt.inputs, sampler, prompt.max_tokens)) as tokens:
                    answer = AnswerTokens(tokens, self._end_tokens)
                    for text in self._tokenizer.decode_stream(answer, prompt.context):
                        yield TextChunk(item=index, prompt=number, text=text, usage=answer.usage(prompt))
                    yield TextChunk(
                        item=index,
                        prompt=number,
                        text="",
                        final=True,
                        usage=answer.usage(prompt),
                        finish=answer.finish,
                        grounding=self._grounding(item, number, prompt, answer.ids, sampler.probabilities),
                    )

    def _grounding(
        self, item: Any, number: int, prompt: EncodedPrompt, ids: Sequence[int], probabilities: Sequence[float]
    ) -> Grounding | None:
        """Return what the answer `ids` to the prompt with this number locates, or None.

        Each place has the mean of the `probabilities` of the tokens; the last probability may be of the end token.
        """
        if self.form is None:
            return None
        score = float(np.mean(probabilities[: len(ids)] or 0))
        text = self._tokenizer.decode(ids, with_special_tokens=True)
        size = (item.images[0].width, item.images[0].height) if len(item.images) == 1 else None
        found = read_grounding(self.form, text, item.prompts[number], size, prompt.input_size, score)
        return found if found.objects or found.note else None


class PromptedImageModel(GenerativeModel[PromptedImage, Answers]):
    """A `VisionLanguageModel` that generates its answers to prompts, which `conversation` formats."""

    def __init__(
        self, conversation: Conversation, generate: TokenGenerator, tokenizer: Tokenizer, end_tokens: frozenset[int]
    ) -> None:
        super().__init__(ImageTextToText().gather, generate, tokenizer, end_tokens)
        self._conversation = conversation

    def _encode(self, inputs: Sequence[PromptedImage]) -> Iterable[Iterable[EncodedPrompt]]:
        # Validate all prompts before the first image is encoded, which takes about a thousand times longer.
        return map(self._encode_item, inputs, [self._conversation.render_item(item) for item in inputs])

    @abstractmethod
    def _encode_item(self, item: PromptedImage, texts: Sequence[str]) -> Iterator[EncodedPrompt]:
        """Yield each prompt with its images."""
