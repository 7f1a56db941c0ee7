"""Metrics of labels, scores, image sizes and batch sizes."""
