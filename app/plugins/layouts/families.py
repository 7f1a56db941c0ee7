"""The layouts of this plugin."""

from app.plugins.layouts import detr, embeddings, faces, objectness, paddle_ocr, pixel_maps, ranked_boxes

_MODULES = (objectness, pixel_maps, detr, ranked_boxes, faces, paddle_ocr, embeddings)
LAYOUTS = tuple(layout for module in _MODULES for layout in module.LAYOUTS)
