"""Test the limits of GRPS messages: at the limit they are answered, above it they are rejected before parsing."""

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from app.core.wire.protobuf_limits import parse_message
from app.plugins.grps.messages import GrpsMessage
from tasks.inference.error import InferenceError
from tasks.inference.limits import Limits
from tests.core.wire.test_protobuf_limits import error_for, length_delimited
from tests.support.servers.grpc_server import GrpcTestClient, run_grpc_server
from tests.support.servers.low_limits import engine_with_low_limits


def test_message_limits_are_enforced() -> None:
    with run_grpc_server(engine_with_low_limits()) as peer:
        check_limits(peer)


def check_limits(peer: GrpcTestClient) -> None:
    def predict(count: int) -> tuple[int, str]:
        request = GrpsMessage(model="echo-fp32")
        request.gtensors.tensors.add(name="x", dtype=7, shape=[1, count], flat_float32=[0.5] * count)
        answer = peer.call_bytes("/grps.protos.v1.GrpsService/Predict", request.SerializeToString())
        reply = GrpsMessage.FromString(answer)
        return reply.status.code, reply.status.msg

    assert predict(598) == (200, "OK")
    assert predict(599) == (413, "Expected at most 600 tensor elements in one request, got 601")
    request = GrpsMessage(model="detector")
    for index in range(40):
        request.gmap.s_i32[str(index)] = index
    answer = GrpsMessage.FromString(peer.call_bytes("/grps.protos.v1.GrpsService/Predict", request.SerializeToString()))
    assert (answer.status.code, answer.status.msg) == (413, "Expected at most 30 fields in one message, got more")


def test_limits_are_checked_before_parsing() -> None:
    with pytest.raises(InferenceError, match="at most 100,000 fields"):
        parse_message(GrpsMessage, length_delimited(3, length_delimited(1, b"")) * 100_001, Limits())


@given(st.binary(max_size=400))
def test_any_bytes_are_accepted_or_rejected(data: bytes) -> None:
    error = error_for(data, message_type=GrpsMessage)
    assert not error or error.startswith("Expected at most ")


@given(st.binary(max_size=60))
def test_every_field_of_a_parsed_message_is_counted(data: bytes) -> None:
    try:
        message = GrpsMessage.FromString(data)
    except DecodeError:
        return
    field_count = sum(1 for _ in message.ListFields())
    if field_count > 1:
        assert error_for(data, Limits(max_entries=field_count - 1, max_elements=1), GrpsMessage)
