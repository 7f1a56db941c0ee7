"""Batching of several calls into one, without Ray."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.plugins.isolation.remote import Failure, run_batch
from tasks.inference.error import ErrorKind, InferenceError


class Doubling:
    """Doubles numbers, but fails for negative ones."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, inputs: Sequence[int], /) -> Sequence[int]:
        self.calls.append(list(inputs))
        if any(number < 0 for number in inputs):
            raise InferenceError(ErrorKind.INVALID_REQUEST, "Expected no negative number", "inputs[0]")
        return [2 * number for number in inputs]


@given(st.lists(st.lists(st.integers(min_value=0)), min_size=1))
def test_batched_calls_get_their_own_results(calls: list[list[int]]) -> None:
    model = Doubling()
    assert run_batch(model, calls) == [[2 * number for number in call] for call in calls]
    assert len(model.calls) == 1


def test_failed_call_does_not_affect_others() -> None:
    failure = Failure(ErrorKind.INVALID_REQUEST, "Expected no negative number", "inputs[0]")
    assert run_batch(Doubling(), [[1], [-1, 2], [3]]) == [[2], failure, [6]]
    assert str(failure.to_error()) == "inputs[0]: Expected no negative number"


def test_single_failed_call_is_not_repeated() -> None:
    model = Doubling()
    assert isinstance(run_batch(model, [[-1]])[0], Failure)
    assert model.calls == [[-1]]


def test_too_few_results_are_a_model_failure() -> None:
    outcomes = run_batch(lambda _: [1], [[1], [2]])
    assert outcomes == [[1], [1]]
    (outcome,) = run_batch(lambda _: [1], [[1, 2]])
    assert outcome == Failure(ErrorKind.MODEL_FAILED, "The model answered 1 of 2 inputs", "")


def test_exception_of_a_model_is_a_model_failure() -> None:
    def fail(_: Sequence[int]) -> Sequence[int]:
        raise RuntimeError("no")

    assert run_batch(fail, [[1]]) == [Failure(ErrorKind.MODEL_FAILED, "The model failed: no", "")]
