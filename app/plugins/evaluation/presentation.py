"""Present an evaluation: as a report, and as values for programs."""

from collections.abc import Mapping, Sequence
from typing import Any

from app import __version__
from app.plugins.evaluation.dataset import LabelledObject, Ring
from app.plugins.evaluation.masks import decode_mask
from app.plugins.evaluation.report import Confusion, EvaluationReport, Mistake
from app.report import AnnotatedImage, Cell, Outline, Report, Table, plain_tables
from tasks.inference.error import InferenceError
from tasks.vision.contours import contours_of_mask
from tasks.vision.image import decode_image, small_jpeg

PRINTED_FIGURES = 5
_MAX_LABELS = 25
"""Maximum size of a drawn matrix. The largest cells are always listed."""
_MAX_CELLS = 30
_MAX_FAILURES = 50
_MAX_IMAGES = 24
_MAX_JSON_MISTAKES = 100
_SIDE = 480
_QUALITY = 78
_MAX_PIXELS = 200_000_000


def present(report: EvaluationReport, *, with_images: bool) -> Report:
    """Return the report; with images, also the worst ones, which are read from their files."""
    measures, failures = report.measures, list(report.failures.items())[:_MAX_FAILURES]
    tables = [*measures.tables]
    if measures.confusion is not None:
        tables += [*_matrix(measures.confusion), _largest_confusions(measures.confusion)]
    if failures:
        note = f"{len(failures)} of {len(report.failures)}." if len(failures) < len(report.failures) else ""
        tables.append(Table(title="Not answered", columns=("item", "reason"), rows=tuple(failures), note=note))
    images = measures.mistakes[:_MAX_IMAGES] if with_images else ()
    items = "questions" if report.task.returns == "texts" else "images"
    colours = " Green: found. Red: wrong. Yellow, dashed: missed." if report.task.geometry else ""
    return Report(
        title=f"{report.source} on {report.dataset} ({report.format}): {report.task}",
        summary=(f"{report.measured} of {report.images} {items} measured.",),
        figures=measures.figures,
        charts=measures.charts,
        tables=tables,
        images=[_annotated_image(mistake) for mistake in images],
        images_title="The worst images",
        images_note=f"{len(images)} of {len(measures.mistakes)} with mistakes.{colours}",
        notes=report.notes,
    )


def values_of(report: EvaluationReport) -> Mapping[str, object]:
    """Return the complete report without images for JSON. It lists the worst hundred images with mistakes."""
    measures = report.measures
    general = ("dataset", "format", "source", "images", "measured")
    return {
        "charioteer": __version__,
        "task": str(report.task),
        **{name: getattr(report, name) for name in general},
        "figures": {figure.name: figure.value for figure in measures.figures},
        "tables": plain_tables(measures.tables),
        "charts": measures.charts,
        "confusion": measures.confusion,
        "mistakes": [_plain_mistake(mistake) for mistake in measures.mistakes[:_MAX_JSON_MISTAKES]],
        "failures": report.failures,
        "notes": report.notes,
    }


def _matrix(confusion: Confusion) -> list[Table]:
    """Return the matrix if it is small; labels without objects share a column."""
    true = _true_indexes(confusion)
    if not 1 <= len(true) <= _MAX_LABELS:
        return []
    labels, others = confusion.labels, [index for index in range(len(confusion.labels)) if index not in true]

    def folded(counts: Sequence[int]) -> list[int]:
        return [*(counts[index] for index in true), *([sum(counts[index] for index in others)] if others else [])]

    rows: list[tuple[Cell, ...]] = [
        (labels[index], *folded(confusion.counts[index]), *confusion.missed[index : index + 1]) for index in true
    ]
    missed = bool(confusion.missed)
    if confusion.extra:
        rows.append(("nothing", *folded(confusion.extra), *([None] if missed else [])))
    names = [labels[index] for index in true]
    columns = ("", *names, *(["other labels"] if others else []), *(["missed"] if missed else []))
    objects = ", of objects and findings that overlap by half or more" if missed else ""
    note = f"Rows are what is true, columns what was found{objects}; colours are shares of a row."
    return [Table(title="Confusion", columns=columns, rows=tuple(rows), note=note, printed=False, matrix=True)]


def _true_indexes(confusion: Confusion) -> list[int]:
    """Return the indexes of the labels that images or objects have."""
    missed = confusion.missed or (0,) * len(confusion.labels)
    return [index for index, counts in enumerate(confusion.counts) if sum(counts) + missed[index]]


def _largest_confusions(confusion: Confusion) -> Table:
    """Return the largest cells off the diagonal: truth, prediction, count, and some images."""
    labels = confusion.labels
    cells = [
        (truth, predicted, count)
        for truth, counts in zip(labels, confusion.counts, strict=True)
        for predicted, count in zip(labels, counts, strict=True)
        if truth != predicted
    ]
    cells += [(label, "", count) for label, count in zip(labels, confusion.missed, strict=False)]
    if confusion.extra:
        cells += [("", labels[index], confusion.extra[index]) for index in _true_indexes(confusion)]
    largest = sorted((cell for cell in cells if cell[2]), key=lambda cell: -cell[2])[:_MAX_CELLS]
    rows = tuple(
        (true or "nothing", guess or "missed", count, ", ".join(confusion.examples.get(f"{true} -> {guess}", ())))
        for true, guess, count in largest
    )
    return Table(
        title="What was taken for what", columns=("true", "found", "times", "for example"), rows=rows, printed=False
    )


def _plain_mistake(mistake: Mistake) -> dict[str, Any]:
    objects, predictions = mistake.result.item.objects, mistake.result.predictions
    return {
        "id": mistake.result.item.id,
        "description": mistake.description,
        "missed": [{"label": objects[index].label, "location": objects[index].location} for index in mistake.missed],
        "wrong": [{"label": predictions[index].label, "score": predictions[index].score} for index in mistake.wrong],
    }


def _annotated_image(mistake: Mistake) -> AnnotatedImage:
    """Return the image with its mistakes; without pixels if it cannot be shown."""
    item, predictions = mistake.result.item, mistake.result.predictions
    unseen = AnnotatedImage(name=item.id, description=mistake.description)
    if item.width * item.height > _MAX_PIXELS:
        return unseen
    try:
        pixels = decode_image(item.image.read_bytes()).pixels
    except (OSError, InferenceError):
        return unseen
    height, width = pixels.shape[:2]
    missed = [item.objects[index] for index in mistake.missed]
    right, wrong = ([predictions[index] for index in indexes] for indexes in (mistake.right, mistake.wrong))
    outlines = [
        *(Outline(kind="missed", label=one.label, rings=_truth_rings(one)) for one in missed),
        *(Outline(kind="right", label=f"{one.label} {one.score:.2f}", rings=one.outlines) for one in right),
        *(Outline(kind="wrong", label=f"{one.label} {one.score:.2f}", rings=one.outlines) for one in wrong),
    ]
    return AnnotatedImage(
        name=item.id,
        description=mistake.description,
        jpeg=small_jpeg(pixels, _SIDE, _QUALITY),
        width=width,
        height=height,
        outlines=outlines,
    )


def _truth_rings(truth: LabelledObject) -> Sequence[Ring]:
    if truth.mask is not None:
        return [tuple(map(tuple, contour.tolist())) for contour in contours_of_mask(decode_mask(truth.mask))]
    return truth.outlines
