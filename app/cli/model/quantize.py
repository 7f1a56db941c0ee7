"""``charioteer quantize``."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingDirectory, PositiveInt
from rich.markup import escape

from app.cli.model.inputs import choose_images, latest_version
from app.cli.terminal import console, progress


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
    from app.assembly.quantization import next_version
    from app.assembly.quantization import quantize as quantize_model

    source = latest_version(path)
    images = choose_images(data, limit)
    folder = output or next_version(source)
    with progress(f"Calibrating {source.name}", len(images)) as bar:
        provenance = quantize_model(source, images, folder, bar.advance)
    terminal = console()
    written = escape(str(folder))
    terminal.print(f"Wrote {written}, calibrated with {provenance.images} images by {provenance.tool}.", soft_wrap=True)
    if output is None and source.root is None:
        terminal.print(f"It is served instead of version {source.version} until you remove it.")
