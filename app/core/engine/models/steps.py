"""The steps of a servable beside its model: candidates -> merge -> scores -> select by the task."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from tasks.task import InputGroup

Runner = Callable[[Sequence[Any]], Sequence[Any]]
"""Runs a model: returns a prediction for each item. It is the model itself, or collects the items of several requests
in batches, or sends them to another process."""


class SplitStep(Protocol):
    """Splits large items into parts, such as the tiles of an image, and merges the predictions for the parts.

    The first three attributes are data, so that a request without parts needs no call of the step.
    """

    @property
    def parameter(self) -> str:
        """Return the name of the parameter of an input that asks for parts, or for none if it is false."""
        ...

    @property
    def default(self) -> bool:
        """Return whether inputs without the parameter are split."""
        ...

    @property
    def output(self) -> str:
        """Return the name of the output parameter with the number of parts of an input."""
        ...

    def split(self, groups: Sequence[InputGroup[Any]], /) -> Sequence[Sequence[Sequence[Any]]]:
        """Return the parts of each item of each input; none for an item that the model takes whole.

        Raise INVALID_REQUEST for parameters that are not possible; TOO_LARGE for too many parts in one request.
        """
        ...

    def merge(self, run: Runner, item: Any, parts: Sequence[Any], /) -> Any:
        """Run the model on the parts of an item, a few at a time. Return the prediction for the whole item."""
        ...


class ScoreStep(Protocol):
    """Changes the scores of predictions, as a calibration does, before the task selects by them."""

    def candidates(self, item: Any, /) -> Any:
        """Return an item for which the model returns all that the task may select after `scores`."""
        ...

    def scores(self, prediction: Any, /) -> Any:
        """Return a prediction with its final scores."""
        ...
