"""The layouts of this plugin."""

from app.plugins.layouts import detections, detr, embeddings, faces, objectness, paddle_ocr, pixel_maps

_MODULES = (objectness, pixel_maps, detr, detections, faces, paddle_ocr, embeddings)
LAYOUTS = tuple(layout for module in _MODULES for layout in module.LAYOUTS)
