"""The turns that the gears are measured with: real coding work on this repository's own files, by kind.

Every prompt is in completion form with one worked example, so that a base model knows what to do, and ends where the
answer begins. What a model makes of it is not judged here: only how fast it says it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["copy", "rename", "hints", "fix", "extract", "explain"]

KINDS: dict[Kind, str] = {
    "copy": "whole-file rewrite with a small edit",
    "rename": "rename across a file",
    "hints": "type hints and docstrings",
    "fix": "fix a failing test",
    "extract": "log lines to JSON",
    "explain": "free-form explanation",
}
EDITS: tuple[Kind, ...] = ("copy", "rename", "hints", "fix", "extract")
"""Kinds whose answers repeat much of their prompt."""

_TEXTS = Path(__file__).parent / "texts"
_SOURCE = Path(__file__).parents[2] / "src" / "gearshift"


@dataclass(frozen=True, slots=True)
class CodingTurn:
    """One turn.

    Attributes:
        name: kind and number.
        prompt: in completion form.
        stop: text that ends the answer.
        most_tokens: the answer is cut here.
    """

    name: str
    kind: Kind
    prompt: str
    stop: str
    most_tokens: int


def coding_turns() -> Iterator[CodingTurn]:
    """All turns, kind by kind, always the same."""
    yield from _file_edits("copy", _COPIES, 1000)
    yield from _file_edits("rename", _RENAMES, 1000)
    rest: tuple[tuple[Kind, int], ...] = (("hints", 600), ("fix", 400), ("extract", 700), ("explain", 300))
    for kind, most in rest:
        yield from _texts(kind, most)


_COPIES = (
    ("wire/usage.py", "the docstring of the module shortened to one line"),
    ("engine/local/cost.py", "_FORGET set to 0.1"),
    ("accounts/keys.py", "a comment above the class"),
    ("server/answers.py", "the first function renamed"),
)
_RENAMES = (
    ("engine/local/detokenize.py", "TextStream", "TokenText"),
    ("engine/local/mailbox.py", "Mailbox", "Postbox"),
    ("wire/sse.py", "frame", "event_frame"),
    ("engine/local/cost.py", "seconds", "duration"),
)


def _file_edits(kind: Kind, edits: tuple[tuple[str, ...], ...], most_tokens: int) -> Iterator[CodingTurn]:
    example = (_TEXTS / f"{kind}.txt").read_text(encoding="utf-8")
    for number, (name, *edit) in enumerate(edits):
        source = (_SOURCE / name).read_text(encoding="utf-8")
        asked = edit[0] if kind == "copy" else f"`{edit[0]}` renamed to `{edit[1]}`"
        prompt = f"{example}\n### File\n```python\n{source}```\n\n### The same file, with {asked}\n```python\n"
        yield CodingTurn(f"{kind}-{number}", kind, prompt, "```", most_tokens)


def _texts(kind: Kind, most_tokens: int) -> Iterator[CodingTurn]:
    """Turns from a file: parts between lines of equal signs; the first is in front of all others."""
    example, *cases = (_TEXTS / f"{kind}.txt").read_text(encoding="utf-8").split("\n====\n")
    for number, case in enumerate(cases):
        stop = "\n### " if kind == "explain" else "```"
        yield CodingTurn(f"{kind}-{number}", kind, f"{example}\n{case}", stop, most_tokens)
