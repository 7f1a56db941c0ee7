"""The images of `charioteer tune`, and what a set-up does to the answers for them."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.core.settings.model import ModelSource
from app.plugins.evaluation.agreement import Agreement, compare_answers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item, LabelErrors
from app.plugins.evaluation.datasets.files import read_image_size
from app.plugins.evaluation.datasets.read import read_dataset
from app.plugins.evaluation.evaluation import evaluate_records
from app.plugins.evaluation.model import local_predictor, parameters_for
from app.plugins.evaluation.runner import InferenceClientError, Records
from app.plugins.tuning.quantization import choose_images
from tasks.inference.limits import Limits

_MAX_CALIBRATION = 100


class TuningData(msgspec.Struct, frozen=True, kw_only=True):
    """The images whose answers are compared, others for the quantisation, unless there are few, and their labels."""

    items: Sequence[Item]
    calibration: Sequence[Path]
    dataset: Dataset | None


class AnswerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a set-up does to the answers.

    `metric` is the first figure of `charioteer evaluate`, or, without labels, the agreement with the reference, and its
    details. `drop` is by how much it is below that of the reference.
    """

    metric: float
    drop: float
    agreement: Agreement | None = None


def read_tuning_data(images: Path | None, labels: Path | None, limit: int) -> TuningData | None:
    """Read the images of a dataset with labels or of a folder, at most `limit` and 100 to calibrate; None without both.

    Raise EvaluationError when the dataset cannot be read. Raise ModelError when the folder has no images.
    """
    if labels is not None:
        dataset = read_dataset(labels)
        items = random.Random(0).sample(dataset.items, len(dataset.items))  # noqa: S311  not for security
    elif images is not None:
        dataset = None
        files = choose_images(images, limit + _MAX_CALIBRATION)
        sizes = [read_image_size(file, LabelErrors()) for file in files]
        items = [Item(id=str(file), image=file, width=w, height=h) for file, (w, h) in zip(files, sizes, strict=True)]
    else:
        return None
    half = min(_MAX_CALIBRATION, len(items) // 2)
    calibration = [item.image for item in items[:half] or items]
    return TuningData(items=items[half:][:limit], calibration=calibration, dataset=dataset)


class AnswerComparison:
    """Compares the answers of set-ups with those of the first one.

    `items` are the compared images; a shorter list may be set between checks. `metric_name` is what is measured:
    ``agreement``, or the figure of `charioteer evaluate`.
    """

    def __init__(self, data: TuningData, limits: Limits) -> None:
        self._limits = limits
        self.items, self._dataset = data.items, data.dataset
        self._parameters: Mapping[str, object] = {} if data.dataset is None else parameters_for(data.dataset)
        self._reference: Mapping[str, Records] = {}
        self.metric_name = "agreement"

    def check(self, source: ModelSource) -> AnswerCheck:
        """Measure the answers of a set-up. The first one is the reference.

        Raise EvaluationError when an image cannot be answered, or the extra `evaluate` is needed and not installed.
        Raise ModelError when it cannot be loaded.
        """
        predict = local_predictor(source, self._parameters, self._limits)
        records: dict[str, Records] = {}
        for item in self.items:
            try:
                records[item.id] = predict(item, item.image.read_bytes())
            except InferenceClientError as error:
                raise EvaluationError(f"{item.image}: {error}") from None
        self._reference = self._reference or records
        expected, _ = self._measure(self._reference)
        metric, agreement = self._measure(records)
        return AnswerCheck(metric=metric, drop=expected - metric, agreement=agreement)

    def _measure(self, records: Mapping[str, Records]) -> tuple[float, Agreement | None]:
        if self._dataset is None:
            agreement = compare_answers(self.items, self._reference, records)
            return agreement.score, agreement
        dataset = msgspec.structs.replace(self._dataset, items=tuple(self.items))
        report = evaluate_records(dataset, {item.id: records[item.id] for item in self.items}, {}, "")
        figure = report.measures.figures[0]
        self.metric_name = figure.name
        return figure.value or 0.0, None
