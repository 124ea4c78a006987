"""Prompts to token ids: through the model's chat template, or in a plain generic form when it has none.

Only the template's own text may hold control tokens. Everything that others wrote is guarded while the template
runs: an unused character is put behind every place where a control token could begin, and taken out again when the
control tokens have been found. Encoded stretches are remembered, so a growing conversation costs its new part.

The generic form, for models without a template: system text first, then `User: ...` and `Assistant: ...`
paragraphs, parted by empty lines, ending in `Assistant:`.
"""

from __future__ import annotations

import re
from array import array
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from threading import Lock
from typing import Any

from gearshift.conversation import Conversation, Prompt, RawText, RawTokens
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.messages import FORMS, Abilities, abilities_of, messages_of, tools_of, with_tools_told
from gearshift.engine.local.template import ChatTemplate, TemplateRefusal
from gearshift.engine.local.template_filters import TemplateProblem
from gearshift.engine.local.tokenizer import Tokenizer, whole_text
from gearshift.engine.protocol import InvalidGeneration

_REMEMBERED_CHARACTERS = 8_000_000
"""Text whose ids are remembered, all stretches together: some dozens of long conversations."""
_NAMES = {"system": "", "user": "User: ", "assistant": "Assistant:", "tool": "Tool: "}


class Renderer:
    """The template and tokenizer of one model. Thread-safe.

    Attributes:
        tokenizer: the model's tokenizer.
        chat: whether the model has a template of its own.
    """

    def __init__(self, gguf: Gguf, tokenizer: Tokenizer) -> None:
        """Raises BadModelFile: the template cannot be used."""
        self.tokenizer = tokenizer
        source = gguf.text("tokenizer.chat_template", "")
        self.chat = bool(source)
        names = {"bos_token": tokenizer.bos, "eos_token": tokenizer.eos}
        texts = {name: "" if id is None else tokenizer.token_text(id) for name, id in names.items()}
        try:
            self._template = ChatTemplate(source, texts) if source else None
        except TemplateProblem as error:
            raise gguf.bad(f"its chat template {error}") from None
        self._able = abilities_of(source) if source else Abilities(tools=False, listed=False, reasoning=False)
        self._structure, self._plain = tokenizer.literals_for(source)
        _, self._own = tokenizer.literals_for("")
        firsts = "".join(sorted({re.escape(text[0]) for text in self._structure.texts if text}))
        # Behind the first visible character too: a token must not begin in the template and end in the content.
        self._openings = re.compile(rf"(?:\A\s*\S|[{firsts}])" if firsts else r"\A\s*\S")
        self._forms = FORMS
        if self._template:
            self._forms = FORMS[self._first_form() :]
        self._known: OrderedDict[tuple[str, bool], array[int]] = OrderedDict()
        self._known_size = 0
        self._lock = Lock()

    def encode(self, prompt: Prompt, now: datetime | None = None) -> array[int]:
        """Token ids of a prompt, BOS included where the model expects it.

        A conversation goes through the template. Raw text is the caller's whole prompt: control tokens in it count,
        as they must for fill-in-the-middle or a template that the caller applied. Raw ids stay as they are.
        `now` is what the template shows as the date; the present when None.

        Raises:
            InvalidGeneration: the template refuses the conversation, or fails on it.
        """
        match prompt:
            case RawTokens(ids):
                return array("i", ids)
            case RawText(text):
                return self._with_bos(array("i", self.tokenizer.encode(text, special=True)))
            case Conversation():
                parts = self._chat_parts(prompt, now or datetime.now()) if self._template else self._plain_parts(prompt)
        ids = array("i")
        after_special = True
        for part in parts:
            if isinstance(part, int):
                ids.append(part)
            else:
                ids.extend(self._encoded(part, after_special))
            after_special = isinstance(part, int)
        return self._with_bos(ids)

    def encode_plain(self, text: str) -> array[int]:
        """Token ids of a text by itself, as a model would write it: no control tokens, nothing in front."""
        return self._encoded(whole_text(text), after_special=True)

    def encode_behind(self, text: str) -> array[int]:
        """Token ids of a text that a model writes behind other text: no control tokens, no space in front, but the
        vocabulary's own tokens such as `<tool_call>`."""
        return array("i", self.tokenizer.encode_plain(whole_text(text), self._own, after_special=False))

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; control tokens have none."""
        return self.tokenizer.decode(ids)

    def _first_form(self) -> int:
        """The first form in which the template drops no system message, tried once on a small conversation."""
        for at, form in enumerate(FORMS):
            messages: list[dict[str, Any]] = []
            for role in ("system", "user", "assistant", "system", "user"):
                messages.append({"role": role, "content": f"probe-{len(messages)}-text"})
            try:
                text = self._rendered(form(messages), datetime(2000, 1, 1))
            except TemplateProblem:
                continue
            if text.count("probe-") == len(messages):
                return at
        return 0

    def _rendered(
        self, messages: list[dict[str, Any]], now: datetime, tools: list[dict[str, Any]] | None = None
    ) -> str:
        assert self._template
        return self._template.render(messages, now, tools=tools)

    def _chat_parts(self, prompt: Conversation, now: datetime) -> list[str | int]:
        mark = _unused_character(prompt)

        def guard(text: str) -> str:
            return self._openings.sub(rf"\g<0>{mark}", whole_text(text))

        messages = messages_of(with_tools_told(prompt, self._able), self._able, guard)
        tools = tools_of(prompt.tools, self._able, guard)
        text = ""
        for form in self._forms:
            try:
                text = self._rendered(form(messages), now, tools)
                break
            except TemplateRefusal as error:
                if form is self._forms[-1]:
                    raise InvalidGeneration(f"The model's chat template {error}.", "messages") from None
            except TemplateProblem as error:
                raise InvalidGeneration(f"The model's chat template {error}.", "messages") from None
        parts = self._structure.split(whole_text(text))
        return [part.replace(mark, "") if isinstance(part, str) else part for part in parts]

    def _plain_parts(self, prompt: Conversation) -> list[str | int]:
        """The generic form, a stretch per message, so that earlier ones keep their ids when others follow."""
        parts: list[str | int] = []
        for message in messages_of(with_tools_told(prompt, self._able), self._able, whole_text):
            space = " " if message["role"] == "assistant" and message["content"] else ""
            parts.append(f"{_NAMES[message['role']]}{space}{message['content']}\n\n")
        return [*parts, _NAMES["assistant"]]

    def _encoded(self, text: str, after_special: bool) -> array[int]:
        key = (text, after_special)
        with self._lock:
            if known := self._known.get(key):
                self._known.move_to_end(key)
                return known
        ids = array("i", self.tokenizer.encode_plain(text, self._plain, after_special))
        with self._lock:
            if key not in self._known:
                self._known[key] = ids
                self._known_size += len(text)
                while self._known_size > _REMEMBERED_CHARACTERS and len(self._known) > 1:
                    (oldest, _), _ = self._known.popitem(last=False)
                    self._known_size -= len(oldest)
        return ids

    def _with_bos(self, ids: array[int]) -> array[int]:
        bos = self.tokenizer.bos
        # Templates often write BOS themselves; two would be one too many.
        if self.tokenizer.adds_bos and bos is not None and (not ids or ids[0] != bos):
            ids.insert(0, bos)
        return ids


def _unused_character(prompt: Conversation) -> str:
    """A private character that occurs nowhere in the prompt."""
    text = repr(prompt)
    code = 0xF0000
    while chr(code) in text or f"\\U{code:08x}" in text:
        code += 1
    return chr(code)
