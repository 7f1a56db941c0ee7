"""Decode the outputs of a graph: one module for each family of layouts, and the choice between them.

To add a family, write a module with a `Layout` and add it to `choice.LAYOUTS`. The layout recognises its graphs with a
certainty, decodes their outputs, and declares the default preprocessing of their images.
"""

from app.runtimes.onnxruntime.layouts.choice import LAYOUTS, choose_layout, declared_task
from app.runtimes.onnxruntime.layouts.layout import GraphView, Match, Output

__all__ = ("LAYOUTS", "GraphView", "Match", "Output", "choose_layout", "declared_task")
