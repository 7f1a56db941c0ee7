"""Tokens from transformers' `generate`, picked by our own sampler, told while they come.

`generate` knows how each architecture is fed. What it does not know is a seed for one request, and a reader that
leaves: so each step's scores are put before our sampler, and the token that it picks is the only one left to choose.
"""

import queue
import threading
from collections.abc import Callable, Generator, Mapping
from typing import Any

from app.runtimes.sampling import Sampler
from app.runtimes.transformers.framework import framework
from app.runtimes.transformers.network import Network
from tasks.text.generation import SamplingParameters

__all__ = ("generate", "stream")


def generate(network: Network, inputs: Mapping[str, Any], parameters: SamplingParameters, most: int) -> list[int]:
    """All tokens of one answer, the one that ends it included.

    Args:
        network: a model that generates.
        inputs: of one text.
        parameters: how freely, and the seed.
        most: so many tokens at most.

    Raises:
        InferenceError: MODEL_FAILED when the scores are not numbers.
    """
    tokens: list[int] = []
    _run(network, inputs, Sampler(parameters), most, tokens.append, threading.Event())
    return tokens


def stream(network: Network, inputs: Mapping[str, Any], parameters: SamplingParameters, most: int) -> Generator[int]:
    """The same tokens one by one. The model is never more than one ahead, and stops when the generator is closed."""
    waiting: queue.Queue[int | BaseException | None] = queue.Queue(maxsize=1)
    left = threading.Event()

    def work() -> None:
        try:
            _run(network, inputs, Sampler(parameters), most, waiting.put, left)
        except BaseException as error:  # noqa: BLE001 - it is raised where the tokens are read
            waiting.put(error)
        waiting.put(None)

    worker = threading.Thread(target=work, name="generate", daemon=True)
    worker.start()
    ended = False
    try:
        while True:
            token = waiting.get()
            if token is None:
                ended = True
                return
            if isinstance(token, BaseException):
                raise token
            yield token
    finally:
        left.set()
        while not ended:
            ended = waiting.get() is None
        worker.join()


def _run(
    network: Network,
    inputs: Mapping[str, Any],
    sampler: Sampler,
    most: int,
    tell: Callable[[int], None],
    left: threading.Event,
) -> None:
    torch, transformers = framework().torch, framework().transformers

    def pick(input_ids: Any, scores: Any) -> Any:
        del input_ids
        token = sampler.pick(scores[0].float().cpu().numpy())
        tell(token)
        only = torch.full_like(scores, -torch.inf)
        only[:, token] = 0
        return only

    def is_left(input_ids: Any, scores: Any) -> Any:
        del scores
        return torch.full((input_ids.shape[0],), left.is_set(), device=input_ids.device, dtype=torch.bool)

    with network.turn, torch.inference_mode():
        network.module.generate(
            **network.placed(inputs),
            do_sample=False,
            num_beams=1,
            num_return_sequences=1,
            max_new_tokens=most,
            logits_processor=transformers.LogitsProcessorList([pick]),
            stopping_criteria=transformers.StoppingCriteriaList([is_left]),
        )
