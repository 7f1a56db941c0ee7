"""The images of `charioteer tune`, and what a set-up does to the answers for them."""

import random
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from app.clients.protocol import InferenceClientError, Records
from app.core.cli.inputs import read_image
from app.core.settings.model import ModelError, ModelSource
from app.plugins.evaluation.agreement import Agreement, compare_answers
from app.plugins.evaluation.dataset import Dataset, EvaluationError, Item, LabelErrors
from app.plugins.evaluation.datasets.read import read_dataset
from app.plugins.evaluation.evaluation import evaluate_records
from app.plugins.evaluation.model import local_predictor, parameters_for
from app.plugins.tuning.quantization import choose_images
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tasks.vision.image import decode_image

_MAX_CALIBRATION = 100


class TuningData(msgspec.Struct, frozen=True, kw_only=True):
    """The images whose answers are compared, others for the quantisation, unless there are few, and their labels.

    `notes` name the files that were left out.
    """

    items: Sequence[Item]
    calibration: Sequence[Path]
    dataset: Dataset | None
    notes: Sequence[str] = ()


class AnswerCheck(msgspec.Struct, frozen=True, kw_only=True):
    """What a set-up does to the answers.

    `metric` is the first figure of `charioteer evaluate`, or, without labels, the agreement with the reference, and its
    details. `drop` is by how much it is below that of the reference.
    """

    metric: float
    drop: float
    agreement: Agreement | None = None


def read_tuning_data(
    images: Path | None,
    labels: Path | None,
    limit: int,
    limits: Limits = Limits(),  # noqa: B008
) -> TuningData | None:
    """Read the images of a dataset with labels or of a folder, at most `limit` and 100 to calibrate; None without both.

    Files of the folder that cannot be decoded within `limits` are left out. Raise EvaluationError when the dataset
    cannot be read. Raise ModelError when the folder has no images.
    """
    errors = LabelErrors(lenient=True)
    if labels is not None:
        dataset = read_dataset(labels)
        items = random.Random(0).sample(dataset.items, len(dataset.items))  # noqa: S311  not for security
    elif images is not None:
        dataset = None
        files = choose_images(images, limit + _MAX_CALIBRATION)
        items = [item for file in files if (item := _decoded_item(file, limits, errors))]
        if not items:
            raise ModelError("\n  ".join([f"No image in {images} can be used:", *errors.messages[:10]]))
    else:
        return None
    half = min(_MAX_CALIBRATION, len(items) // 2)
    calibration = [item.image for item in items[:half] or items]
    return TuningData(items=items[half:][:limit], calibration=calibration, dataset=dataset, notes=errors.notes())


def _decoded_item(file: Path, limits: Limits, errors: LabelErrors) -> Item | None:
    """Return the item of an image; record an error and return None if it cannot be decoded."""
    try:
        image = decode_image(read_image(file, limits))
    except (InferenceError, ModelError, OSError) as error:
        errors.add(str(file), str(error).removeprefix(f"{file}: "))
        return None
    return Item(id=str(file), image=file, width=image.width, height=image.height)


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
