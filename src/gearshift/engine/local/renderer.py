"""From a prompt in our words to token ids. For now prompts that are text or tokens already; conversations need the
model's template."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

from gearshift.conversation import Conversation, Prompt, RawText
from gearshift.engine.local.gguf import Gguf
from gearshift.engine.local.tokenizer import Tokenizer
from gearshift.engine.protocol import InvalidGeneration


class Renderer:
    """Renders prompts for one model."""

    def __init__(self, gguf: Gguf, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.chat = False

    def encode(self, prompt: Prompt) -> array[int]:
        """Token ids of a prompt. Raises InvalidGeneration for a conversation."""
        if isinstance(prompt, Conversation):
            raise InvalidGeneration("This model takes no conversations yet; use a plain prompt.", "prompt")
        if isinstance(prompt, RawText):
            begin = [self._tokenizer.bos] if self._tokenizer.adds_bos and self._tokenizer.bos is not None else []
            return array("i", begin + self._tokenizer.encode(prompt.text))
        return array("i", prompt.ids)

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids; control tokens have none."""
        return self._tokenizer.decode(list(ids))
