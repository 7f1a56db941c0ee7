"""Stream tokens from transformers' `generate`, selected by our own sampler.

`generate` handles the inputs of each architecture, but supports neither a seed for one request nor cancellation.
Therefore our sampler selects a token from the scores of each step, and masks all other tokens.
"""

import queue
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any

from app.runtimes.sampling import ForcedTokens, Sampler, TokenPicker
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.network import Network
from tasks.text.generation import SamplingParameters


def generate(network: Network, inputs: Mapping[str, Any], parameters: SamplingParameters, max_tokens: int) -> list[int]:
    """Return all tokens of one answer, including the end token.

    Args:
        network: a model that can generate.
        inputs: inputs of one text.
        parameters: sampling parameters and seed.
        max_tokens: maximum number of tokens.

    Raises:
        InferenceError: MODEL_FAILED if the scores are not finite.
    """
    tokens: list[int] = []
    _run(network, inputs, Sampler(parameters), max_tokens, tokens.append, threading.Event())
    return tokens


def log_likelihood(network: Network, inputs: Mapping[str, Any], tokens: Sequence[int]) -> float:
    """Return how likely `tokens` are as the start of the answer to `inputs`, as a logarithm in nats.

    It is of the distribution at temperature 1, after the processors that the model's own generation config declares.
    """
    forced = ForcedTokens(tokens)
    if tokens:
        _run(network, inputs, forced, len(tokens), lambda _: None, threading.Event())
    return forced.log_likelihood


def stream(
    network: Network, inputs: Mapping[str, Any], parameters: SamplingParameters, max_tokens: int
) -> Generator[int]:
    """Yield the tokens one by one. The model is at most one token ahead, and stops when the generator is closed."""
    tokens: queue.Queue[int | BaseException | None] = queue.Queue(maxsize=1)
    closed = threading.Event()

    def run() -> None:
        try:
            _run(network, inputs, Sampler(parameters), max_tokens, tokens.put, closed)
        except BaseException as error:  # noqa: BLE001 - raised again in the reading thread
            tokens.put(error)
        tokens.put(None)

    worker = threading.Thread(target=run, name="generate", daemon=True)
    worker.start()
    ended = False
    try:
        while True:
            token = tokens.get()
            if token is None:
                ended = True
                return
            if isinstance(token, BaseException):
                raise token
            yield token
    finally:
        closed.set()
        while not ended:
            ended = tokens.get() is None
        worker.join()


def _run(
    network: Network,
    inputs: Mapping[str, Any],
    sampler: TokenPicker,
    max_tokens: int,
    on_token: Callable[[int], None],
    closed: threading.Event,
) -> None:
    torch, transformers = framework().torch, framework().transformers

    def pick(input_ids: Any, scores: Any) -> Any:
        del input_ids
        token = sampler.pick(scores[0].float().cpu().numpy())
        on_token(token)
        only = torch.full_like(scores, -torch.inf)
        only[:, token] = 0
        return only

    def is_closed(input_ids: Any, scores: Any) -> Any:
        del scores
        return torch.full((input_ids.shape[0],), closed.is_set(), device=input_ids.device, dtype=torch.bool)

    with network.call_lock, torch.inference_mode():
        network.module.generate(
            **network.to_device(inputs),
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            max_new_tokens=max_tokens,
            logits_processor=transformers.LogitsProcessorList([pick]),
            stopping_criteria=transformers.StoppingCriteriaList([is_closed]),
        )
