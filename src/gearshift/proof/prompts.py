"""The prompts of a proof, drawn from a seed: kinds of work from pieces of this package's own source and a few fixed
texts. Pieces come from few files on purpose, so that prompts share prefixes and the cache is hit. How tokens are
chosen for them is in `cases`.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

import gearshift


@dataclass(frozen=True, slots=True)
class Script:
    """What is said in one conversation.

    Attributes:
        kind: the kind of work.
        form: `chat` goes through the model's template, `raw` is the model's whole prompt.
        says: the user's part of each turn, in order; the model's answers come between them.
        prediction: text that the first answer is likely to repeat; "" for none.
    """

    kind: str
    form: Literal["chat", "raw"]
    says: tuple[str, ...]
    prediction: str = ""


Maker = Callable[[random.Random], Script]

_QUESTIONS = (
    "Explain in three sentences why a cache makes programs faster.",
    "Write a short story about a lighthouse keeper who repairs a gearbox.",
    "What is the difference between a process and a thread?",
    "Name five things to check before a release, one per line.",
    "Write a limerick about a queue that never ends.",
)
_FOLLOW_UPS = ("Now say the same in one sentence.", "Give an example.", "Repeat your last answer word for word.")
_CHINESE = (
    "用三句话解释什么是缓存。",
    "写一首关于大海和齿轮的短诗。",
    "请把下面的话重复三遍：速度是档位，答案不变。速度是档位，答案不变。",
    "列出学习编程的五个建议。",
)
_EMOJI = (
    "Answer with emoji only: 🙂🚀🎉 what is the weather like? ☀️🌧️",
    "Continue the pattern: 🔴🟢🔵🔴🟢🔵🔴🟢🔵🔴",
    "Spell HELLO with flags and families: 🇩🇪👨‍👩‍👧‍👦🇫🇷👩🏽‍🚀",
)
_NAMES = ("harbour", "anchor", "beacon", "compass", "lantern", "mooring", "rudder", "tiller")


def scripts(draw: random.Random) -> tuple[Script, ...]:
    """One script of every kind, in a fixed order of kinds."""
    return tuple(make(draw) for make in _MAKERS)


def source_piece(draw: random.Random, lines: int) -> str:
    """So many lines in a row from a source file of this package."""
    text = draw.choice(_sources())
    start = draw.randrange(max(1, len(text) - lines))
    return "\n".join(text[start : start + lines])


@cache
def _sources() -> Sequence[Sequence[str]]:
    """The lines of a few source files: the longer ones, so that pieces differ, of an even spread of rooms."""
    files = sorted(Path(gearshift.__file__).parent.rglob("*.py"))
    texts = [file.read_text(encoding="utf-8").splitlines() for file in files]
    return [text for text in texts if len(text) >= 100][::4]


def _copy(draw: random.Random) -> Script:
    """Code twice, and the beginning of a third time: a model goes on as before."""
    code = source_piece(draw, draw.randrange(4, 9))
    return Script("code copy", "raw", (f"{code}\n\n{code}\n\n{code[: len(code) // 4]}",), prediction=code)


def _rename(draw: random.Random) -> Script:
    """The same code under another name, begun."""
    code = source_piece(draw, draw.randrange(5, 9))
    words = sorted(set(re.findall(r"\b[a-z_]{4,}\b", code))) or ["value"]
    old, new = draw.choice(words), draw.choice(_NAMES)
    renamed = re.sub(rf"\b{old}\b", new, code)
    said = f"# Before:\n{code}\n\n# With {old} renamed to {new}:\n{renamed}\n\n# Once more:\n{renamed[:40]}"
    return Script("rename", "raw", (said,), prediction=renamed)


def _json(draw: random.Random) -> Script:
    """Lines of a log and their objects; the last is left to the model."""
    lines: list[str] = []
    for _ in range(4):
        name, port, up = draw.choice(_NAMES), draw.randrange(1024, 9999), draw.choice(["true", "false"])
        lines.append(f'server {name} port {port} up {up}\n{{"server": "{name}", "port": {port}, "up": {up}}}')
    name, port = draw.choice(_NAMES), draw.randrange(1024, 9999)
    return Script("JSON extraction", "raw", ("\n".join([*lines, f"server {name} port {port} up true\n"]),))


def _free(draw: random.Random) -> Script:
    return Script("free text", "chat", (draw.choice(_QUESTIONS),))


def _chinese(draw: random.Random) -> Script:
    return Script("Chinese", "chat", (draw.choice(_CHINESE),))


def _emoji(draw: random.Random) -> Script:
    return Script("emoji", "chat", (draw.choice(_EMOJI),))


def _question_on_code(draw: random.Random) -> Script:
    """Questions on one of few pieces: their prompts begin alike."""
    code = source_piece(random.Random(draw.randrange(3)), 16)
    ask = draw.choice(["What does this code do?", "Name every function in it.", "Write a docstring for it."])
    return Script("question on code", "chat", (f"```python\n{code}\n```\n{ask}",))


def _conversation(draw: random.Random) -> Script:
    return Script("conversation", "chat", (draw.choice(_QUESTIONS), *draw.sample(_FOLLOW_UPS, 2)))


_MAKERS: tuple[Maker, ...] = (_copy, _free, _rename, _chinese, _conversation, _json, _question_on_code, _emoji)
