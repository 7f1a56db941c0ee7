"""``charioteer export``."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingPath
from cyclopts.validators import Number

from app.core.cli.terminal import console, printable, table
from app.core.settings.server import SettingsError

_OPSET = 17


def export(
    folder: ExistingPath,
    *,
    output: Annotated[Path, Parameter(help="The folder to write the model and its configuration into.")],
    opset: Annotated[int, Parameter(validator=Number(gte=14, lte=20))] = _OPSET,
    tolerance: float = 1e-3,
) -> None:
    """Export a transformers model to ONNX, run both on the same images, and fail when the outputs differ.

    Args:
        folder: Hugging Face folder of an image classifier, an object detector, or a semantic segmenter.
        output: Folder to write to.
        opset: ONNX opset version, 14 to 20.
        tolerance: Maximum difference between outputs of ONNX Runtime and torch, relative to the largest value.
    """
    terminal = console()
    if not folder.is_dir():
        raise SettingsError(f"{folder}: Expected a folder of transformers, got a file")
    from app.plugins.transformers.torch.export import export_model

    export_result = export_model(folder, output, opset, tolerance)
    differences = table("input", "output", "largest difference", title="torch and ONNX Runtime")
    for (height, width), by_output in export_result.comparisons:
        for name, difference in by_output.items():
            differences.add_row(f"{height}x{width}", name, f"{difference:.2e}")
    terminal.print(differences)
    sizes = "of any size" if export_result.any_size else "of {}x{} pixels".format(*export_result.comparisons[0][0])
    terminal.print(f"Wrote {printable(export_result.file)}, which takes images {sizes}.")
    if export_result.max_difference > tolerance:
        terminal.print(f"[red]They differ by more than {tolerance:g}.[/red]")
        sys.exit(1)
