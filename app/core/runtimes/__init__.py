"""Run models. A model's files or its settings determine its runtime."""
