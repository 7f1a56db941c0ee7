"""Several calls made one, without Ray."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from app.assembly.ray_serve.batching import together
from app.assembly.ray_serve.exchange import Failure
from tasks.exchange.error import ErrorKind, InferenceError


class Doubling:
    """Numbers twice as large; it fails over negative ones."""

    def __init__(self) -> None:
        self.calls: list[list[int]] = []

    def __call__(self, inputs: Sequence[int], /) -> Sequence[int]:
        self.calls.append(list(inputs))
        if any(each < 0 for each in inputs):
            raise InferenceError(ErrorKind.INVALID_REQUEST, "Expected no negative number", "inputs[0]")
        return [2 * each for each in inputs]


@given(st.lists(st.lists(st.integers(min_value=0)), min_size=1))
def test_every_call_gets_its_own_answers_of_one_call(calls: list[list[int]]) -> None:
    model = Doubling()
    assert together(model, calls) == [[2 * each for each in call] for call in calls]
    assert len(model.calls) == 1


def test_a_call_at_fault_spoils_no_other() -> None:
    failure = Failure(ErrorKind.INVALID_REQUEST, "Expected no negative number", "inputs[0]")
    assert together(Doubling(), [[1], [-1, 2], [3]]) == [[2], failure, [6]]
    assert str(failure.error()) == "inputs[0]: Expected no negative number"


def test_a_call_alone_is_not_repeated() -> None:
    model = Doubling()
    assert isinstance(together(model, [[-1]])[0], Failure)
    assert model.calls == [[-1]]


def test_a_model_that_answers_too_little_is_told_of() -> None:
    outcomes = together(lambda _: [1], [[1], [2]])
    assert outcomes == [[1], [1]]
    (outcome,) = together(lambda _: [1], [[1, 2]])
    assert outcome == Failure(ErrorKind.MODEL_FAILED, "The model answered 1 of 2 inputs", "")


def test_what_a_model_raises_is_told() -> None:
    def fail(_: Sequence[int]) -> Sequence[int]:
        raise RuntimeError("no")

    assert together(fail, [[1]]) == [Failure(ErrorKind.MODEL_FAILED, "The model failed: no", "")]
