"""Text from token bytes: any cutting of any bytes and stop strings gives the text of the whole at once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gearshift.engine.local.detokenize import TextStream

PIECES = st.lists(
    st.one_of(
        st.binary(max_size=5),
        st.text("ab\n ", max_size=6).map(str.encode),
        st.sampled_from(["é", "你好", "🙂", "👩‍💻"]).map(str.encode),
        st.sampled_from([b"\xf0\x9f", b"\x99\x82", b"\xe4\xbd", b"\xff", b"\xed\xa0\x80"]),
    ),
    max_size=20,
)
STOPS = st.lists(st.text("ab\n é🙂�", min_size=1, max_size=5), max_size=4)


def whole(data: bytes, stops: Sequence[str]) -> tuple[str, str | None]:
    """The text at once: cut at the stop string that is complete first, at its longest if two are."""
    text = data.decode("utf-8", "replace")
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            stop = max(complete, key=len)
            return text[: end - len(stop)], stop
    return text, None


def stream(pieces: Sequence[bytes], stops: Sequence[str]) -> tuple[str, str | None]:
    texts = TextStream(stops)
    text = ""
    for piece in pieces:
        new = texts.push(piece)
        assert texts.stopped_by is None or texts.stopped_by in stops
        text += new
    return text + texts.finish(), texts.stopped_by


@given(PIECES, STOPS)
@example([b"a", b"b", b"a", b"b", b"\n"], ["abab\n", "ba"])
@example([b"\xf0\x9f"], ["�"])
@settings(max_examples=200, deadline=None)
def test_any_cutting_gives_the_text_of_the_whole(pieces: list[bytes], stops: list[str]) -> None:
    assert stream(pieces, stops) == whole(b"".join(pieces), stops)


@given(PIECES, STOPS, st.data())
@settings(max_examples=100, deadline=None)
def test_nothing_is_given_out_that_a_stop_string_would_take_back(
    pieces: list[bytes], stops: list[str], data: st.DataObject
) -> None:
    """Whatever text was given out after some pieces is a beginning of the final text for every continuation."""
    texts = TextStream(stops)
    given_out = "".join(texts.push(piece) for piece in pieces)
    more = data.draw(PIECES)
    assert whole(b"".join(pieces + more), stops)[0].startswith(given_out)


def test_characters_arrive_whole() -> None:
    texts = TextStream()
    assert [texts.push(bytes([byte])) for byte in "a🙂".encode()] == ["a", "", "", "", "🙂"]
    assert texts.push(b"\xe4\xbd") == ""
    assert texts.finish() == "�"


def test_text_flows_when_no_stop_string_can_come() -> None:
    texts = TextStream(["\n\n", "END"])
    assert texts.push(b"one line") == "one line"
    assert texts.push(b" E") == " "
    assert texts.push(b"x\n") == "Ex"
    assert texts.push(b"E") == "\nE"[:1]
    assert texts.push(b"ND of") == ""
    assert texts.stopped_by == "END"
    assert texts.finish() == ""


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_long_stop_string_that_nearly_matches(size: int) -> None:
    stop = "a" * size + "b"
    text, by = stream([b"a" * size, b"a", b"b tail"], [stop])
    assert (text, by) == ("a", stop)
