"""Payloads and results: what is refused, what is escaped, and that neither size nor shape can hurt."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import InvalidArgument, SluicegateError
from sluicegate.model import FinishItem, Lease
from sluicegate.ops import requests
from sluicegate.ops.json_text import MAX_JSON_BYTES, encode
from sluicegate.ops.text import MAX_ERROR_BYTES, MAX_SUMMARY_BYTES, clipped, storable
from sluicegate.store.statements import decode

SCOPE = "endpoint:default"
LEASE = Lease(7, "token")

any_text = st.text(st.characters(exclude_categories=()))
stored_text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | stored_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(stored_text, inner, max_size=5),
    max_leaves=20,
)
wild_values = st.recursive(
    st.none() | st.floats() | any_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(any_text, inner, max_size=5),
    max_leaves=20,
)


def refused(value: Any) -> InvalidArgument:
    with pytest.raises(InvalidArgument) as caught:
        encode(value, "payload")
    assert caught.value.field == "payload"
    str(caught.value).encode()
    return caught.value


def nested(depth: int, *, as_dict: bool = False) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = {"k": value} if as_dict else [value]
    return value


@given(json_values)
def test_every_json_value_arrives_as_it_was(value: Any) -> None:
    assert json.loads(encode(value, "payload")) == value


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ("a\0b", ""),
        ({"a": ["x", "y\0"]}, "payload['a'][1]"),
        ({"k\0": 1}, "key"),
        ("\ud800", ""),
        ({"a": {"b": "\udc00x"}}, "payload['a']['b']"),
        ({"\udfff": 1}, "key"),
        ("\ud83d\ude80", ""),  # two halves that Python does not join
    ],
)
def test_nul_and_lone_surrogates_are_refused_where_they_stand(value: Any, place: str) -> None:
    assert place in refused(value).message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -math.inf, {"a": [float("nan")]}])
def test_nan_and_infinity_are_not_json(value: Any) -> None:
    assert "is not JSON" in refused(value).message


@pytest.mark.parametrize("value", [object(), {1, 2}, b"x", {"a": 1j}, {1: "a"}, {None: 1}, ["a", print]])
def test_other_objects_and_keys_that_are_not_text_are_not_json(value: Any) -> None:
    refused(value)


@pytest.mark.parametrize("as_dict", [False, True])
def test_nesting_goes_100_deep_and_no_deeper(as_dict: bool) -> None:
    encode(nested(100, as_dict=as_dict), "payload")
    assert "100 deep" in refused(nested(101, as_dict=as_dict)).message


def test_a_nesting_bomb_is_refused_without_recursion() -> None:
    assert "100 deep" in refused(nested(200_000)).message


def test_an_answer_nested_too_deep_to_read_is_an_error_of_ours() -> None:
    with pytest.raises(SluicegateError, match="nested deeper"):
        decode("[" * 100_000 + "]" * 100_000)


def test_a_value_inside_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append(loop)
    assert "100 deep" in refused(loop).message
    wide: dict[str, Any] = {}
    wide.update({str(index): wide for index in range(50)})
    refused(wide)


def test_a_billion_laughs_is_refused_by_size_long_before_it_is_written() -> None:
    laugh: Any = "ha"
    for _ in range(20):
        laugh = [laugh] * 10
    assert "1 MiB" in refused(laugh).message


def test_a_payload_has_at_most_one_mebibyte_of_utf_8() -> None:
    assert len(encode("x" * (MAX_JSON_BYTES - 2), "payload").encode()) == MAX_JSON_BYTES
    assert "1 MiB" in refused("x" * (MAX_JSON_BYTES - 1)).message
    assert "1 MiB" in refused("é" * (MAX_JSON_BYTES // 2)).message
    assert "1 MiB" in refused([0] * 10_000_000).message


def test_a_number_too_long_to_write_is_refused() -> None:
    assert "4,300" in refused([10**5000]).message


@given(any_text)
def test_escaped_text_can_be_stored_and_clean_text_is_untouched(text: str) -> None:
    escaped = storable(text)
    assert "\0" not in escaped
    escaped.encode()
    try:
        text.encode()
    except UnicodeEncodeError:
        assert escaped != text
    else:
        assert (escaped == text) == ("\0" not in text)


@given(any_text)
def test_what_was_escaped_can_be_read_back(text: str) -> None:
    # The escape is Python's and JSON's own: undoing it for the characters concerned gives the text again.
    unescaped = storable(text.replace("\\", "")).replace("\\u0000", "\0")
    for half in range(0xD800, 0xE000):
        if f"\\u{half:04x}" in unescaped:
            unescaped = unescaped.replace(f"\\u{half:04x}", chr(half))
    assert unescaped == text.replace("\\", "")


@given(wild_values)
def test_no_text_or_number_in_a_result_stops_a_job_from_finishing(result: Any) -> None:
    sent = requests.complete(LEASE, result, summary=None, scope=SCOPE)["result"]
    assert "\0" not in sent
    sent.encode()
    assert "\\u0000" not in json.dumps(json.loads(sent)).replace("\\\\", "")


def test_escapes_are_visible_in_nested_results() -> None:
    sent = requests.complete(LEASE, {"a\0": ["\ud800", float("nan"), -math.inf]}, summary=None, scope=SCOPE)["result"]
    assert json.loads(sent) == {"a\\u0000": ["\\ud800", "nan", "-inf"]}


@pytest.mark.parametrize("result", [nested(101), object(), "x" * MAX_JSON_BYTES])
def test_a_result_of_a_wrong_shape_is_the_programmers_to_mend(result: Any) -> None:
    with pytest.raises(InvalidArgument) as caught:
        requests.complete(LEASE, result, summary=None, scope=SCOPE)
    assert caught.value.field == "result"


@given(any_text, st.integers(min_value=100, max_value=400))
def test_clipped_text_fits_and_says_so(text: str, most: int) -> None:
    whole = storable(text)
    cut = clipped(whole, most)
    assert len(cut.encode()) <= most
    assert (cut == whole) == (len(whole.encode()) <= most)


def test_a_long_error_keeps_both_its_ends() -> None:
    text = "first line\n" + "é" * 100_000 + "\nlast line"
    sent = requests.fail(LEASE, text, retry_in_seconds=None, retry=True, summary=text, scope=SCOPE)
    for field, most in (("error", MAX_ERROR_BYTES), ("summary", MAX_SUMMARY_BYTES)):
        assert sent[field].startswith("first line\n")
        assert sent[field].endswith("\nlast line")
        assert "the middle is left out" in sent[field]
        assert most - 10 < len(sent[field].encode()) <= most


def test_last_words_are_escaped_and_never_refused_for_what_they_hold() -> None:
    sent = requests.fail(LEASE, "died: \0\ud83d", retry_in_seconds=None, retry=True, summary="\0", scope=SCOPE)
    assert sent["error"] == "died: \\u0000\\ud83d"
    assert sent["summary"] == "\\u0000"
    items = requests.finish_many([FinishItem.released(LEASE, reason="\0")], scope=SCOPE, wait=True)["finished"]
    assert json.loads(items)[0]["reason"] == "\\u0000"
