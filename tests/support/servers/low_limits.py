"""Create an engine with low limits."""

from app.core.engine.engine import Engine
from tasks.inference.limits import Limits
from tests.support.servers.grpc_server import build_engine

MAX_BYTES = 60_000
LIMITS = Limits(
    max_request_bytes=MAX_BYTES, max_pixels=3000, max_request_pixels=5000, max_image_side=100, max_inputs=4,
    max_elements=600, max_values=700, max_entries=30, max_json_depth=12, max_name_length=40, max_prompts=3,
    max_text_length=50, max_new_tokens=20,
)  # fmt: skip
MODELS = ("detector", "teller", "continuer", "tagger", "echo-fp32", "echo-bytes")


def engine_with_low_limits() -> Engine:
    return build_engine(MODELS, limits=LIMITS)
