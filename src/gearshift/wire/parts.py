"""Parts of text as bodies hold them, and the text that they make together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec


class TextPart(msgspec.Struct):
    """A piece of text where nothing else may stand."""

    # Not a tag: msgspec lets a struct that stands alone come without its tag.
    type: Literal["text"]
    text: str


class PlainText(msgspec.Struct, tag_field="type", tag="text"):
    """A piece of text among parts of other kinds."""

    text: str


class InputText(msgspec.Struct, tag_field="type", tag="input_text"):
    """Text from outside, as the responses endpoint names it."""

    text: str


class OutputText(msgspec.Struct, tag_field="type", tag="output_text"):
    """Text of an earlier answer, as the responses endpoint names it."""

    text: str


class Refusal(msgspec.Struct, tag_field="type", tag="refusal"):
    """A refusal in an earlier answer."""

    refusal: str


Text = str | list[TextPart]


def text_of(content: str | Sequence[TextPart | PlainText | InputText | OutputText | Refusal]) -> str:
    """The text of a string or of parts, one after the other."""
    if isinstance(content, str):
        return content
    return "".join(part.refusal if isinstance(part, Refusal) else part.text for part in content)
