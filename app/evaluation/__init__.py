"""How well a model does on labelled data: datasets, metrics, reports."""
