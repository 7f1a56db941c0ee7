"""The language of metadata conditions."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.recording.query.conditions import Condition, Operator, Scalar, parse_conditions
from tasks.inference.error import ErrorKind, InferenceError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('camera = "north"', Condition(key="camera", operator=Operator.EQUAL, values=("north",))),
        ("camera='it''s'", None),
        (r"camera = 'it\'s'", Condition(key="camera", operator=Operator.EQUAL, values=("it's",))),
        ("frame != -3", Condition(key="frame", operator=Operator.NOT_EQUAL, values=(-3,))),
        ("blur<=.5e1", Condition(key="blur", operator=Operator.LESS_OR_EQUAL, values=(5.0,))),
        ("frame:int = 3", Condition(key="frame", type="int", operator=Operator.EQUAL, values=(3,))),
        ("pose.yaw > 3.0", Condition(key="pose", members=("yaw",), operator=Operator.GREATER, values=(3.0,))),
        ('"pose.yaw" > 3', Condition(key="pose.yaw", operator=Operator.GREATER, values=(3,))),
        ("pose.'a b'.c = true", Condition(key="pose", members=("a b", "c"), operator=Operator.EQUAL, values=(True,))),
        ('k IN ["a", 2, 2.5]', Condition(key="k", operator=Operator.IN, values=("a", 2, 2.5))),
        ('tag contains "50%_"', Condition(key="tag", operator=Operator.CONTAINS, values=("50%_",))),
        ("in = 9223372036854775807", Condition(key="in", operator=Operator.EQUAL, values=(2**63 - 1,))),
        (r'été = "\ud83d\ude00"', Condition(key="été", operator=Operator.EQUAL, values=("\U0001f600",))),
    ],
)
def test_condition_is_parsed(text: str, expected: Condition | None) -> None:
    if expected is None:
        with pytest.raises(InferenceError):
            parse_conditions([text])
    else:
        assert parse_conditions([text]) == [expected]


def test_and_equals_repeated_conditions() -> None:
    assert parse_conditions(['a = 1 AND b = "x and y"']) == parse_conditions(["a = 1", 'b = "x and y"'])


def test_integer_and_float_are_distinguished() -> None:
    values = [parse_conditions([text])[0].values[0] for text in ("a = 3", "a = 3.0")]
    assert [type(value) for value in values] == [int, float]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "Expected a key"),
        ("camera", "Expected one of = != < <= > >= in contains, got the end"),
        ("camera = north", "Expected a number, a text in quotes, true or false, got 'north' at character 10"),
        ("camera == 3", "Expected a number"),
        ("camera ; 3", "Unexpected text in a condition: '; 3'"),
        ('camera = "nor', "Expected a closing quote"),
        ("a = 3 b = 4", "Expected and, or the end, got 'b' at character 7"),
        ("a = 3 and", "Expected a key"),
        ("a = 3x", "Unexpected text in a condition: '3x'"),
        ("a = 9223372036854775808", "Expected a whole number of 64 bits"),
        ("a = " + "9" * 5000, "Expected a whole number of 64 bits"),
        ("a = 1e999", "Expected a finite number"),
        ("a = nan", "got 'nan'"),
        ("a in 3", "Expected values in brackets"),
        ("a in ()", "Expected a number"),
        ("a in (1, 2", "Expected a comma or )"),
        ("a in (1, 2]", "Expected a comma or )"),
        ("a = (1)", "Expected a number"),
        ("a in (" + ",".join("1" * 1001) + ")", "Expected at most 1000 values, got 1001"),
        ("a:decimal = 3", "Expected the type str, int, float or dict"),
        ("a.b:int = 3", "A type applies to an entry"),
        ('a:int = "x"', "An entry of type int is never = 'x'"),
        ('a:float contains "x"', "An entry of type float is never contains 'x'"),
        ("a = true", "true and false are members of objects"),
        ("a.b < true", "true and false are members of objects"),
        ("a contains 3", "Expected a text in quotes behind contains"),
        ("a." * 20 + "b = 1", "Expected a path of at most 16 names, got 21"),
        ('a = "\\x"', "Expected \\\\ for a backslash"),
        ('a = "\\ud800"', "halves of surrogate pairs"),
        ('a = "\\u0000"', "zero characters"),
        ("a = '\0'", "zero characters"),
        ("a = \u0661", "Unexpected text in a condition:"),
        ("a = " + "x" * 30_000, "Expected at most 20000 characters"),
    ],
)
def test_error_describes_the_invalid_condition(text: str, message: str) -> None:
    with pytest.raises(InferenceError) as raised:
        parse_conditions([text])
    assert message in raised.value.message
    assert raised.value.path == "where"
    assert raised.value.kind is ErrorKind.INVALID_REQUEST


def test_too_many_conditions_are_rejected() -> None:
    for texts in (["a = 1"] * 10_000, [" and ".join(["a = 1"] * 2000)]):
        with pytest.raises(InferenceError, match="Expected at most 32 conditions"):
            parse_conditions(texts)


@given(st.text(alphabet=st.characters() | st.sampled_from("ab.=<>!\"'\\ ()[],:019e-"), max_size=60))
def test_any_text_is_parsed_or_rejected(text: str) -> None:
    try:
        conditions = parse_conditions([text])
    except InferenceError as error:
        assert error.path == "where"  # noqa: PT017
    else:
        assert conditions


_texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
_values = _texts | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False, allow_infinity=False)


@given(_texts, st.lists(_texts, max_size=3), st.lists(_values, min_size=1, max_size=4))
def test_formatted_condition_is_parsed_back(key: str, members: list[str], values: list[Scalar]) -> None:
    path = ".".join(map(json.dumps, [key, *members]))
    written = f"{path} in ({', '.join(json.dumps(value) for value in values)})"
    (parsed,) = parse_conditions([written])
    assert parsed == Condition(key=key, members=tuple(members), operator=Operator.IN, values=tuple(values))
