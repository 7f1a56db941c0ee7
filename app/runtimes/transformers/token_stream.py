"""Stream tokens from transformers' `generate`, selected by our own sampler.

`generate` handles the inputs of each architecture, but supports neither a seed for one request nor cancellation.
Therefore our sampler selects a token from the scores of each step, and masks all other tokens.
"""

import queue
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from app.runtimes.sampling import TokenPicker
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.network import Network


def generate(network: Network, inputs: Mapping[str, Any], picker: TokenPicker, max_tokens: int) -> list[int]:
    """Return all tokens of one answer, including the end token.

    Args:
        network: a model that can generate.
        inputs: inputs of one text.
        picker: chooses each token.
        max_tokens: maximum number of tokens.

    Raises:
        InferenceError: MODEL_FAILED if the scores are not finite.
    """
    tokens: list[int] = []
    _run(network, inputs, picker, max_tokens, tokens.append, threading.Event())
    return tokens


def stream(network: Network, inputs: Mapping[str, Any], picker: TokenPicker, max_tokens: int) -> Generator[int]:
    """Yield the tokens one by one. The model is at most one token ahead, and stops when the generator is closed."""
    tokens: queue.Queue[int | BaseException | None] = queue.Queue(maxsize=1)
    closed = threading.Event()

    def run() -> None:
        try:
            _run(network, inputs, picker, max_tokens, tokens.put, closed)
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
    picker: TokenPicker,
    max_tokens: int,
    on_token: Callable[[int], None],
    closed: threading.Event,
) -> None:
    torch, transformers = framework().torch, framework().transformers

    def pick(input_ids: Any, scores: Any) -> Any:
        del input_ids
        token = picker.pick(scores[0].float().cpu().numpy())
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
