"""``charioteer quantize``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingDirectory, PositiveInt

from app.core.cli.terminal import console, printable, progress
from app.plugins.tuning.images import choose_images


def quantize(
    path: Annotated[Path, Parameter(help="An ONNX model file, or a model's folder.")],
    *,
    data: ExistingDirectory,
    limit: PositiveInt = 100,
    output: Path | None = None,
) -> None:
    """Quantise an ONNX model to int8, and write it as a new version of the model.

    Int8 is faster on processors with instructions for it, and changes answers. Compare them before you serve it:
    `charioteer evaluate` measures each version.

    Args:
        path: the model.
        data: Folder of images for the calibration, such as those that --record-images stored.
        limit: Maximum number of images, chosen at random.
        output: Folder to write; by default the next version beside the model.
    """
    from app.core.assembly.discovery import latest_version, model_at
    from app.plugins.tuning.quantization import next_version
    from app.plugins.tuning.quantization import quantize as quantize_model

    source = latest_version(model_at(path))
    images = choose_images(data, limit)
    folder = output or next_version(source)
    with progress(f"Calibrating {source.name}", len(images)) as bar:
        provenance = quantize_model(source, images, folder, bar.advance)
    terminal = console()
    written = printable(folder)
    terminal.print(f"Wrote {written}, calibrated with {provenance.images} images by {provenance.tool}.", soft_wrap=True)
    terminal.print(f"It loads, and its outputs differ from the original's by at most {provenance.difference:.1%}.")
    if output is None and source.root is None:
        advice = f"A server of {printable(folder.parent)} uses it instead of version {source.version}"
        terminal.print(f"{advice} until you remove it.", soft_wrap=True)
