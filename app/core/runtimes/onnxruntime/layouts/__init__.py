"""Decode the outputs of a graph: one module for each family of layouts, and the choice between them.

To add a family, write a module with a `Layout` and add it to `choice.LAYOUTS`, or to a plugin's layouts. The layout
recognises its graphs, decodes their outputs, and declares the preprocessing of their images.
"""
