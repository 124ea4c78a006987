"""Templates write the same bytes as an encoder would."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from gearshift.wire import sse


class Event(msgspec.Struct):
    sequence_number: int
    id: str
    delta: str


@given(st.text(), st.integers(min_value=0, max_value=1 << 40))
def test_a_filled_template_is_the_encoded_event(text: str, number: int) -> None:
    plain = sse.TextTemplate(sse.data({"id": "x", "text": sse.SLOT}))
    assert plain.fill(text) == sse.data({"id": "x", "text": text})
    numbered = sse.NumberedTemplate(sse.named("event", Event(sse.SLOT_NUMBER, "x", sse.SLOT)))
    assert numbered.fill(number, text) == sse.named("event", Event(number, "x", text))


@given(st.text())
def test_no_text_can_end_its_event_early(text: str) -> None:
    event = sse.TextTemplate(sse.data({"text": sse.SLOT})).fill(text)
    assert event.count(b"\n") == 2
    assert b"\r" not in event
