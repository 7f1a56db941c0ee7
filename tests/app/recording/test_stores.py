"""What both kinds of store do."""

import json
from collections.abc import Sequence

import pytest

from app.recording.conversion import Conversion
from app.recording.redaction import Redaction
from app.recording.rows import Rows
from app.recording.store import Store, StoreError, StoreFault
from tests.app.recording.conftest import open_store
from tests.app.recording.contents import contents
from tests.support.recordings import detected, refused

METADATA = [
    {"key": "camera", "type": "str", "value": "north"},
    {"key": "altitude", "type": "int", "value": "120"},
    {"key": "yaw", "type": "float", "value": "0.25"},
    {"key": "pose", "type": "dict", "value": '{"pitch": [1, 2]}'},
]


def rows(count: int = 1, *, started: int = 1_000_000, picture: bytes = b"jpeg") -> list[Rows]:
    convert = Conversion(Redaction(()), keep_images=True)
    events = [detected(metadata=METADATA, started=1000 * (started + place), picture=picture) for place in range(count)]
    return [each for event in events for each in convert(event).rows]


def test_what_is_written_is_there(store: Store, url: str) -> None:
    (written,) = rows()
    store.write([written])
    (row,) = contents(url)
    assert row.pop("number") == 1
    assert row == written.inference._asdict()
    entries = [
        {**each, "jv": json.loads(each["jv"]) if each["jv"] else None} for each in contents(url, "inference_metadata")
    ]
    assert [(each["key"], each["iv"], each["fv"], each["tv"], each["jv"]) for each in entries] == [
        ("camera", None, None, "north", None),
        ("altitude", 120, None, None, None),
        ("yaw", None, 0.25, None, None),
        ("pose", None, None, None, {"pitch": [1, 2]}),
    ]
    found = {each["label"]: (round(each["score"], 3), each["count"]) for each in contents(url, "inference_labels")}
    assert found == {"ship": (0.9, 2), "quay": (0.8, 1), "crane": (0.7, 1), "buoy": (0.6, 1)}


def test_numbers_grow_in_the_order_of_writing(store: Store, url: str) -> None:
    written = rows(5)
    store.write(written[:2])
    store.write(written[2:])
    found = contents(url)
    assert [each["id"] for each in found] == [each.inference.id for each in written]
    assert len({each["number"] for each in found}) == 5


def test_odd_text_is_no_reason_to_refuse(store: Store, url: str) -> None:
    odd = "\0 \N{PILE OF POO} ' \" ; DROP TABLE inferences; -- \\u0000"
    value = json.dumps({odd: [odd, 1e300, {"deep": None}]})
    metadata = [
        {"key": odd, "type": "str", "value": odd * 1000},
        {"key": "d", "type": "dict", "value": value},
        {"key": "i", "type": "int", "value": str(2**80)},
    ]
    convert = Conversion(Redaction(()), keep_images=False)
    event = detected(metadata=metadata, parameters={odd: odd}, labels=(odd, "b"), model_name=odd * 100, base_id=odd)
    store.write([*convert(event).rows, *convert(refused()).rows])
    first, second = contents(url)
    assert json.loads(first["metadata"])[0]["value"] == odd * 1000
    assert json.loads(first["parameters"]) == {odd: odd}
    assert second["error"] == "model_not_found"


def test_what_was_deleted_is_gone_from_all_tables(store: Store, url: str) -> None:
    written = rows(10)
    store.write(written)
    assert store.delete_before(1_000_004, most=3) == 3
    assert store.delete_before(1_000_004, most=3) == 1
    assert store.delete_before(1_000_004, most=3) == 0
    left = {each["number"] for each in contents(url)}
    assert len(left) == 6
    for table in ("inference_metadata", "inference_labels"):
        assert {each["number"] for each in contents(url, table)} == left


def test_an_image_is_in_use_while_an_inference_of_the_time_has_it(store: Store, url: str) -> None:
    old, new = rows(started=1000, picture=b"old"), rows(started=5000, picture=b"new")
    store.write([*old, *new])
    digests = [each.inference.image_digest or "" for each in (*old, *new)]
    assert store.images_since([*digests, "00"], 1000) == set(digests)
    assert store.images_since(digests, 1001) == {digests[1]}
    store.forget_images(digests[:1])
    assert [bool(each["image_kept"]) for each in contents(url)] == [False, True]
    assert store.images_since(digests, 0) == {digests[1]}


def test_a_row_that_cannot_be_is_refused_with_all_that_came_with_it(store: Store, url: str) -> None:
    good, bad = rows(2)
    impossible = Rows(inference=bad.inference._replace(duration=2**70), metadata=(), labels=())
    with pytest.raises(StoreError) as refused:
        store.write([good, impossible])
    assert refused.value.fault is StoreFault.REJECTED
    assert contents(url) == []
    store.write([good])
    assert len(contents(url)) == 1


def test_what_may_have_been_written_already_is_not_doubled(store: Store, url: str) -> None:
    written = rows(3)
    store.write(written)
    with pytest.raises(StoreError):
        store.write([*written, *impossible_rows()])
    store.write(written)
    assert [each["id"] for each in contents(url)] == [each.inference.id for each in written]
    for table in ("inference_metadata", "inference_labels"):
        assert {each["number"] for each in contents(url, table)} == {each["number"] for each in contents(url)}


def test_a_store_is_opened_again_with_what_is_in_it(store: Store, url: str) -> None:
    store.write(rows())
    again = open_store(url)
    again.open()
    again.write(rows())
    again.close()
    assert len(contents(url)) == 2


def test_two_write_to_one_store_in_turns(store: Store, url: str) -> None:
    other = open_store(url)
    other.open()
    for _ in range(5):
        store.write(rows(2))
        other.write(rows(2))
    other.close()
    found = contents(url)
    assert len({each["number"] for each in found}) == len({each["id"] for each in found}) == 20


def impossible_rows() -> Sequence[Rows]:
    (bad,) = rows()
    return [Rows(inference=bad.inference._replace(duration=2**70), metadata=(), labels=())]
