"""Values of the payload in a command's arguments."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sluicegate.errors import InvalidArgument
from sluicegate.worker.words import MAX_VALUE_BYTES, CommandLine, Unusable

PAYLOAD: dict[str, Any] = {
    "to": "ada@example.org",
    "n": 3,
    "ratio": 0.5,
    "on": True,
    "off": False,
    "none": None,
    "files": ["a.txt", {"name": "b c.txt"}, ["deep"]],
    "nested": {"a": {"b": "found"}},
    "umlaut": "grün",
    "": "the empty key",
    "0": "a key that looks like a position",
}


def one(word: str, payload: Any = PAYLOAD) -> str:
    program, argument = CommandLine(["run", word]).arguments(payload)
    assert program == b"run"
    return argument.decode()


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("{payload.to}", "ada@example.org"),
        ("--to={payload.to}!", "--to=ada@example.org!"),
        ("{payload.to}{payload.n}", "ada@example.org3"),
        ("{payload.n}", "3"),
        ("{payload.ratio}", "0.5"),
        ("{payload.on}", "true"),
        ("{payload.off}", "false"),
        ("{payload.none}", "null"),
        ("{payload.files.0}", "a.txt"),
        ("{payload.files.1.name}", "b c.txt"),
        ("{payload.files.1}", '{"name":"b c.txt"}'),
        ("{payload.files.2}", '["deep"]'),
        ("{payload.files.00}", "a.txt"),
        ("{payload.nested.a.b}", "found"),
        ("{payload.nested}", '{"a":{"b":"found"}}'),
        ("{payload.umlaut}", "grün"),
        ("{payload.}", "the empty key"),
        ("{payload.0}", "a key that looks like a position"),
    ],
)
def test_a_reference_becomes_its_value(word: str, value: str) -> None:
    assert one(word) == value


def test_the_whole_payload_is_compact_json() -> None:
    assert json.loads(one("{payload}")) == PAYLOAD
    assert one("{payload}", "plain text") == "plain text"
    assert one("{payload}", [1, "a"]) == '[1,"a"]'
    assert one("{payload}", None) == "null"


@pytest.mark.parametrize(
    "word",
    [
        "{}",
        "{{payload",
        "{payload",
        "payload}",
        "{Payload}",
        "{payloads}",
        "{payload to}",
        "${HOME}",
        "{a.b}",
        "%s",
        "{}{}",
    ],
)
def test_other_braces_mean_themselves(word: str) -> None:
    assert one(word) == word


def test_values_are_not_looked_at_again() -> None:
    assert one("{payload.a}", {"a": "{payload.b}", "b": "secret"}) == "{payload.b}"


def test_nothing_is_split_and_nothing_expanded() -> None:
    value = "a b; $(rm -rf /) `id` * ? \"'\\ \n\t"
    assert CommandLine(["run", "{payload}", "{payload}"]).arguments(value)[1:] == [value.encode()] * 2


def test_an_empty_value_is_an_empty_argument() -> None:
    assert CommandLine(["run", "{payload.a}", "last"]).arguments({"a": ""}) == [b"run", b"", b"last"]


@pytest.mark.parametrize(
    ("word", "problem"),
    [
        ("{payload.from}", "there is no 'from'"),
        ("{payload.nested.a.c}", "there is no 'c'"),
        ("{payload.to.0}", "'0' is asked of text"),
        ("{payload.n.x}", "'x' is asked of a number"),
        ("{payload.on.x}", "'x' is asked of a boolean"),
        ("{payload.none.x}", "'x' is asked of null"),
        ("{payload.files.3}", "'3' is no position in a list of 3"),
        ("{payload.files.-1}", "'-1' is no position in a list of 3"),
        ("{payload.files.²}", "'²' is no position in a list of 3"),
        ("{payload.files.1234567890123}", "is no position in a list of 3"),
        ("{payload.files.name}", "'name' is no position in a list of 3"),
    ],
)
def test_an_unknown_path_is_told_with_the_reason(word: str, problem: str) -> None:
    with pytest.raises(Unusable) as refused:
        one(word)
    assert str(refused.value).startswith(f"The command line asks for {word}, but the payload does not have it: ")
    assert problem in str(refused.value)


def test_a_value_may_have_64_kib_and_no_more() -> None:
    assert one("{payload}", "x" * MAX_VALUE_BYTES) == "x" * MAX_VALUE_BYTES
    for value in ("x" * (MAX_VALUE_BYTES + 1), "ü" * (MAX_VALUE_BYTES // 2 + 1), ["x" * MAX_VALUE_BYTES]):
        with pytest.raises(Unusable, match="at most 65,536 fit an argument"):
            one("{payload}", value)


def test_a_nul_cannot_be_an_argument() -> None:
    with pytest.raises(Unusable, match="holds a NUL character"):
        one("{payload}", "a\0b")


@pytest.mark.parametrize("words", [[], [""], ["{payload.program}", "x"], ["{payload}"], ["run", "a\0b"]])
def test_a_command_that_can_never_be_started_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidArgument) as refused:
        CommandLine(words)
    assert refused.value.field is not None
    assert refused.value.field.startswith("command")


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20),
        lambda inner: (
            st.lists(inner, max_size=3) | st.dictionaries(st.text("abc", min_size=1, max_size=2), inner, max_size=3)
        ),
        max_leaves=8,
    )
)
def test_every_member_of_any_payload_can_be_reached(payload: Any) -> None:
    def walk(value: Any, path: str) -> None:
        want = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        assert one(f"{{payload{path}}}", payload) == want
        members = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, member in members:
            walk(member, f"{path}.{key}")

    walk(payload, "")
