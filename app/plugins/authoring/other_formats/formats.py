"""The formats of this plugin."""

from app.core.hooks import ForeignFormat
from app.plugins.authoring.other_formats.advice import advice_for
from app.plugins.authoring.other_formats.other_servers import (
    TRITON_FILE,
    label_filename,
    read_triton_config,
    reject_mlserver_runtime,
)

FORMATS = (
    ForeignFormat(files=(TRITON_FILE,), read=read_triton_config, label_file=label_filename),
    ForeignFormat(check=reject_mlserver_runtime),
    ForeignFormat(advice=advice_for),
)
"""Triton, MLServer, and the files of frameworks that no runtime reads by itself."""
