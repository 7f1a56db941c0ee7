"""Deliberate faults in an engine of chariot-v2."""

from tests.plugins.conformance.deliberate_faults.spoiling import (
    change_bytes,
    errors_in,
    rename_field,
    replace_at,
    replace_containing,
    replace_field,
    replace_when,
)
from tests.plugins.conformance.engines import AnswerFault, AnswerFaults, faults_of


def reject_content_type(content_type: str, status: int = 415) -> AnswerFault:
    return replace_when(lambda r: r.method == "POST" and r.headers.get("content-type", "") == content_type, status)


def reverse_lines(content: bytes) -> bytes:
    return b"".join(line + b"\n" for line in reversed(content.splitlines()))


ANSWER_FAULTS: AnswerFaults = {
    "results": ("CV2-001", rename_field("output", "results")),
    "no slash at the end": ("CV2-002", replace_at("/infer/")),
    "items in a list": ("CV2-003", replace_field("output", lambda items: [items])),
    "a Content-Type is needed": ("CV2-004", reject_content_type("")),
    "no lines": ("CV2-005", reject_content_type("application/jsonl")),
    "no images": ("CV2-007", reject_content_type("image/png")),
    "any header": ("CV2-008", replace_when(lambda r: r.headers.get("chariot-inference-parameters") == "{", 200)),
    "not JSON, 500": ("CV2-009", replace_when(lambda r: r.content == b'{"input": ', 500)),
    "not base64, 500": ("CV2-010", replace_containing(b"%%%", 500)),
    "no input, 500": ("CV2-011", replace_when(lambda r: r.content == b'{"parameters":{}}', 500)),
    "errors without detail": ("CV2-012", errors_in("error")),
}
FAULTS = {
    **faults_of("chariot-v2", "detector", ANSWER_FAULTS),
    **faults_of("chariot-v2", "detector", {"lines backwards": ("CV2-006", change_bytes(reverse_lines))}, raw=True),
}
