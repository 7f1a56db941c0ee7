"""``charioteer export``."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from cyclopts.types import ExistingDirectory
from cyclopts.validators import Number
from rich.markup import escape
from rich.table import Table

from app.cli.terminal import console

__all__ = ("export",)


def export(
    folder: ExistingDirectory,
    *,
    output: Annotated[Path, Parameter(help="The folder to write model.onnx, config.json and the processor into.")],
    opset: Annotated[int, Parameter(validator=Number(gte=14, lte=20))] = 17,
    tolerance: float = 1e-3,
) -> None:
    """Write a transformers model as ONNX, put the same pictures to both, and fail when they differ.

    Args:
        folder: A folder of Hugging Face: an image classifier, an object detector, or a semantic segmenter.
        output: Where to.
        opset: The version of ONNX's operators, 14 to 20.
        tolerance: How much an output of ONNX Runtime may differ from that of torch, as a share of its largest number.
    """
    from app.assembly.export import export_model

    printed = console()
    made = export_model(folder, output, opset, tolerance)
    table = Table("input", "output", "largest difference", title="torch and ONNX Runtime", title_justify="left")
    for each in made.compared:
        for name, difference in each.outputs.items():
            table.add_row(f"{each.size[0]}x{each.size[1]}", name, f"{difference:.2e}")
    printed.print(table)
    sizes = "of any size" if made.any_size else "of {}x{} pixels".format(*made.compared[0].size)
    printed.print(f"Wrote {escape(str(made.file))}, which takes pictures {sizes}.")
    if made.scores is None:
        printed.print("[yellow]Served, one of the two finds more than the other.[/yellow]")
    else:
        printed.print(f"Served, their scores differ by at most {made.scores:.2e}.")
    if made.largest > tolerance:
        printed.print(f"[red]They differ by more than {tolerance:g}.[/red]")
        sys.exit(1)
