"""Prompts as token ids, the same for every engine.

The cost of a token does not depend on which one it is, so the prompts are fixed pseudo-random ids from the middle of
the vocabulary: no tokenizer can differ, and no two prompts share a prefix that a cache could reuse.
"""

from __future__ import annotations

LOWEST_ID = 1000
"""Below are special and byte tokens."""
HIGHEST_ID = 40000
"""Well inside the smallest vocabulary measured (49,152)."""


def prompt_ids(count: int, key: int) -> list[int]:
    """`count` token ids; another `key` gives another prompt, different from the first token on."""
    state = (key * 0x9E3779B97F4A7C15 + 0xD1B54A32D192ED03) & 0xFFFFFFFFFFFFFFFF
    ids: list[int] = []
    for _ in range(count):
        # Knuth's MMIX constants; the low bits of such a generator are poor, so the high ones are used.
        state = (state * 6364136223846793005 + 1442695040888963407) & 0xFFFFFFFFFFFFFFFF
        ids.append(LOWEST_ID + (state >> 33) % (HIGHEST_ID - LOWEST_ID))
    return ids
