"""What the numbers in a graph's outputs mean: one module for each family of layouts, and the choice between them.

A new one is a module with a `Layout`, and its name in `choice.LAYOUTS`. It says of a graph whether that is its own, how
sure it is, how its outputs are read and how its pictures are usually prepared; nothing else knows of it.
"""

from app.runtimes.onnxruntime.layouts.choice import LAYOUTS, choose_layout, told_task
from app.runtimes.onnxruntime.layouts.layout import Match, Output, View

__all__ = ("LAYOUTS", "Match", "Output", "View", "choose_layout", "told_task")
