"""Compare ONNX models, as they are served, with the pipelines of the libraries that they come from.

Each model answers photographs of several sizes. The table shows the largest differences from the reference, and those
with OpenCV's bilinear filter without antialiasing instead of the filter that the files or the layout ask for.
"""

import math
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import msgspec
from rich.console import Console
from rich.table import Table

from app.core.assembly.discovery import model_at
from app.core.assembly.models import load
from tests.benchmarks.pipelines.comparison import Answer, Difference, Family, Pixels, difference, photos, served
from tests.benchmarks.pipelines.hugging_face import timm_family, transformers_families
from tests.benchmarks.pipelines.paddle_ocr import paddle_families
from tests.benchmarks.pipelines.torch_detectors import torch_detector_families
from tests.benchmarks.pipelines.ultralytics_models import ultralytics_families


def measured(
    family: Family, images: Sequence[Pixels], expected: Sequence[Answer], *, without_antialias: bool = False
) -> Difference:
    """Return the largest differences from the answers of the reference over all images.

    With `without_antialias`, OpenCV's bilinear filter replaces the one that the files or the layout ask for.
    """
    (source,) = model_at(family.path)
    if without_antialias:
        preprocessing = msgspec.structs.replace(
            source.settings.preprocessing, interpolation="bilinear", antialias=False
        )
        settings = msgspec.structs.replace(source.settings, preprocessing=preprocessing)
        source = msgspec.structs.replace(source, settings=settings)
    servable = load(source)
    found = [
        difference(answer, served(servable, pixels, family.parameters))
        for answer, pixels in zip(expected, images, strict=True)
    ]
    return Difference(
        score=max(one.score for one in found),
        place=max(one.place for one in found),
        mask=max(one.mask for one in found),
        texts=sum(one.texts for one in found),
    )


def main() -> None:
    """Print the table."""
    warnings.simplefilter("ignore")
    images = photos()
    table = Table(
        "model", "reference", "score", "box or point, pixels", "mask, pixels", "with OpenCV's bilinear filter"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        families = (
            *transformers_families(folder),
            timm_family(folder),
            *ultralytics_families(folder),
            *torch_detector_families(folder),
            *paddle_families(folder),
        )
        for family in families:
            table.add_row(family.name, family.pipeline, *_cells(family, images))
    Console(width=160).print(table)


def _cells(family: Family, images: Sequence[Pixels]) -> tuple[str, str, str, str]:
    expected = [family.expected(pixels) for pixels in images]
    now, before = (measured(family, images, expected, without_antialias=without) for without in (False, True))
    if expected[0].text is not None:
        return f"{now.texts} of {len(images)} texts", "-", "-", f"{before.texts} of {len(images)} texts"
    has_scores, has_places = (any(getattr(answer, name).size for answer in expected) for name in ("scores", "places"))
    has_masks = any(answer.masks for answer in expected)
    return (
        _shown(now.score, "{:.5f}") if has_scores else "-",
        _shown(now.place, "{:.3f}") if has_places else "-",
        _shown(now.mask, "{:.3%}") if has_masks else "-",
        _shown(before.score, "{:.5f}") if has_scores else _shown(before.mask, "{:.3%}"),
    )


def _shown(value: float, template: str) -> str:
    return template.format(value) if math.isfinite(value) else "other objects"


if __name__ == "__main__":
    main()
