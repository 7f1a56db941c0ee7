"""``charioteer quantize``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingDirectory, NormFloat, PositiveInt

from app.core.cli.terminal import console, printable, progress


def quantize(
    path: Annotated[Path, Parameter(help="An ONNX model file, or a model's folder.")],
    *,
    data: ExistingDirectory,
    limit: PositiveInt = 200,
    max_changed: NormFloat | None = None,
    output: Path | None = None,
) -> None:
    """Quantise an ONNX model to int8, and write it as a new version of the model.

    Int8 is faster on processors with instructions for it, and changes answers. They are compared with the original's
    on at least 50 images. If too many differ, nothing is written.

    Args:
        path: the model.
        data: Folder of images, such as those that --record-images stored. Half calibrate, half judge the answers; of
            fewer than 100, all do both.
        limit: Maximum number of images, chosen at random.
        max_changed: Share of answers that may differ, 0 to 1; by default 0.02 of the labels of a classifier, or 0.05
            of the objects, which match at IoU 0.5 and the same label.
        output: Folder to write; by default the next version beside the model.
    """
    from app.core.assembly.discovery import latest_version, model_at
    from app.plugins.quantization.quantization import choose_images, next_version
    from app.plugins.quantization.quantization import quantize as quantize_model

    source = latest_version(model_at(path))
    images = choose_images(data, limit)
    folder = output or next_version(source)
    with progress(f"Calibrating {source.name}") as bar:
        provenance = quantize_model(source, images, folder, bar.advance, max_changed)
    terminal = console()
    written = printable(folder)
    terminal.print(f"Wrote {written}, calibrated with {provenance.images} images by {provenance.tool}.", soft_wrap=True)
    if provenance.verdict:
        terminal.print(f"{provenance.verdict.finding}, on {provenance.verdict.processor}.", soft_wrap=True)
    if output is None and source.root is None:
        advice = f"A server of {printable(folder.parent)} uses it instead of version {source.version}"
        terminal.print(f"{advice} until you remove it.", soft_wrap=True)
