"""The formats of this plugin."""

from app.core.hooks import ForeignFormat
from app.plugins.other_formats.advice import advice_for
from app.plugins.other_formats.other_servers import (
    MLFLOW_FILE,
    TRITON_FILE,
    label_filename,
    read_mlflow_model,
    read_triton_config,
    reject_mlserver_runtime,
)

FORMATS = (
    ForeignFormat(files=(TRITON_FILE,), read=read_triton_config, label_file=label_filename),
    ForeignFormat(files=(MLFLOW_FILE,), read=read_mlflow_model),
    ForeignFormat(check=reject_mlserver_runtime),
    ForeignFormat(advice=advice_for),
)
"""Triton, MLflow, MLServer, and the files of frameworks that no runtime reads by itself."""
