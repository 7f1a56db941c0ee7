"""What explains the answers of a model: changed copies of its inputs, or the model itself."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, Literal, TypeVar, cast

import msgspec

from app.engine.inference_result import ExplanationTargets, InferenceResult
from app.engine.models.model_call import call_model
from tasks.inference.response import Prediction
from tasks.row_importance import UNEXPLAINED_ROWS, RowTarget, explains_rows
from tasks.saliency.sampling import ExplanationTarget
from tasks.task import (
    ExplainableTask,
    ExplainedPart,
    InputGroup,
    InputKind,
    LikelihoodModel,
    Model,
    ScoredTask,
    SelfExplainingModel,
    Task,
)

__all__ = ("Explainer", "ExplanationSource", "explanation_methods")

Explainer = ExplainedPart | Literal["model"]
"""What explains answers: copies of the inputs without some of these parts, or the model itself."""

_METHODS = ("explain", "log_likelihoods")

InputT = TypeVar("InputT")
PredictionT = TypeVar("PredictionT", bound=Prediction)

Predict = Callable[
    [Model[InputT, PredictionT]], tuple[InferenceResult, Sequence[InputGroup[InputT]], Sequence[PredictionT]]
]
"""Answers a request with the given model, and returns the result, the decoded inputs and the raw predictions."""


def explanation_methods(model: object) -> frozenset[str]:
    """Return the names of the methods beside `__call__` that explanations use and `model` has."""
    return frozenset(name for name in _METHODS if callable(getattr(model, name, None)))


class ExplanationSource(Generic[InputT, PredictionT]):
    """Finds what to explain in the answers of a model.

    Args:
        task: the task of the model.
        model: the model. Its own `explain` precedes the method of the task type.
        takes: what the model takes.

    Attributes:
        explainer: what explains the answers; None if they cannot be explained.
        missing: the reason why they cannot be explained, as the end of a sentence.
    """

    def __init__(self, task: Task[InputT, PredictionT], model: Model[InputT, PredictionT], takes: InputKind) -> None:
        self._task = task
        self._model = model
        self.missing = ""
        self.explainer: Explainer | None = task.task_type.explains
        if getattr(model, "explain", None) is not None:
            self.explainer = "model"
        elif self.explainer == "numbers":
            if takes != "tensor" or not explains_rows(task.inputs, task.outputs):
                self.explainer, self.missing = None, UNEXPLAINED_ROWS
        elif task.task_type.returns == "texts" and getattr(model, "log_likelihoods", None) is None:
            self.explainer, self.missing = None, "its runtime does not report how likely an answer is"

    def targets(self, predict: Predict[InputT, PredictionT], label: str | None, max_objects: int) -> ExplanationTargets:
        """Answer a request, and return the targets to explain by their pixels or words."""
        task = cast("ExplainableTask[InputT]", self._task)
        result, groups, predictions = predict(self._model)
        raw_predictions = iter(predictions)
        targets = [
            [
                self._target(item, task.targets(next(raw_predictions), filtered, label, max_objects))
                for item, filtered in zip(group.items, output.predictions, strict=True)
            ]
            for group, output in zip(groups, result.outputs, strict=True)
        ]
        return ExplanationTargets(result=result, targets=targets)

    def row_target(
        self, predict: Predict[InputT, PredictionT], labels: Sequence[str]
    ) -> tuple[InferenceResult, RowTarget]:
        """Answer a request to a TENSOR model, and return the rows to explain."""
        result, groups, predictions = predict(self._model)
        target = RowTarget(
            model=partial(call_model, cast("Any", self._model)),
            item=cast("Any", groups[0].items[0]),
            prediction=cast("Any", predictions[0]),
            labels=labels,
        )
        return result, target

    def by_model(self, predict: Predict[InputT, PredictionT]) -> tuple[InferenceResult, Sequence[Sequence[Any]]]:
        """Answer a request, and return the model's own explanation of each sample of each output."""
        model = cast("SelfExplainingModel[InputT, PredictionT]", self._model)
        explanations: list[Any] = []

        def explain(items: Sequence[InputT], /) -> Sequence[PredictionT]:
            explained = model.explain(items)
            explanations.extend(explanation for _, explanation in explained)
            return [prediction for prediction, _ in explained]

        result, groups, _ = predict(explain)
        remaining = iter(explanations)
        return result, [[next(remaining) for _ in group.items] for group in groups]

    def _target(self, item: InputT, predictions: Any) -> ExplanationTarget[InputT, PredictionT]:
        model: Callable[[Sequence[InputT]], Sequence[Any]] = partial(call_model, self._model)
        if not isinstance(self._task, ScoredTask):
            log_likelihoods = cast("LikelihoodModel[InputT]", self._model).log_likelihoods
            answer = predictions.prediction

            def likelihoods(items: Sequence[InputT], /) -> Sequence[Any]:
                return log_likelihoods(items, [answer] * len(items))

            model = partial(call_model, likelihoods)
            predictions = msgspec.structs.replace(predictions, scores=model([item])[0])
        return ExplanationTarget(task=self._task, model=model, item=item, predictions=predictions)
