"""Options of plugins for commands that load models."""

import pickle
from pathlib import Path

from app.core.assembly.models import find_models
from app.core.plugins import registry
from app.core.settings.server import DEMO_MODELS, ModelOptions
from app.plugins.isolation.settings import IsolationOptions
from app.plugins.openvino.settings import OpenVinoOptions


def test_options_of_plugins_reach_the_models() -> None:
    options = registry().model_options(model=DEMO_MODELS / "detector", compile_cache=Path("/cache"))
    (source,) = find_models(options)
    assert source.of(OpenVinoOptions).compile_cache == Path("/cache")
    assert not source.of(IsolationOptions).isolate


def test_options_of_core_alone_have_the_defaults_of_plugins() -> None:
    (source,) = find_models(ModelOptions(model=DEMO_MODELS / "detector"))
    assert source.of(OpenVinoOptions) == OpenVinoOptions()


def test_composed_options_can_be_pickled() -> None:
    options = registry().model_options(isolate=True)
    assert pickle.loads(pickle.dumps(options)) == options
    settings = registry().settings(otlp_endpoint="http://127.0.0.1:4318")
    assert pickle.loads(pickle.dumps(settings)) == settings
