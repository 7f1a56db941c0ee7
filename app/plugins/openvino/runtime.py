"""The runtime openvino, which loads only models whose settings name it."""

from app.core.runtimes.runtime import ModuleRuntime

OPENVINO = ModuleRuntime("openvino", 30, "app.plugins.openvino.session", lambda _: False, ("fp32", "bf16", "int8"))
RUNTIMES = (OPENVINO,)
