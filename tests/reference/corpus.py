"""The fixed corpus of mixed prose, code, JSON, SQL, Markdown and log lines, as text and as token ids.

The ids were made once with llama.cpp's tokenizer (Gemma's begin with its start token), so the reference needs no
tokenizer. About 4,600 tokens per model; tests use the first of them.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

_FOLDER = Path(__file__).parent / "corpus"

SHORT = 384
"""Tokens of the short tests: prose, then Python."""
LONG = 4096
"""Tokens of the full tests: all kinds of text."""


def corpus_text() -> str:
    """The whole text."""
    return "".join(path.read_text(encoding="utf-8") for path in sorted(_FOLDER.glob("*.txt")))


def corpus_tokens(model: str, count: int) -> NDArray[np.int64]:
    """The first `count` ids for a model that can be fetched by that name."""
    ids = np.array((_FOLDER / f"{model}.ids").read_text().split(), dtype=np.int64)
    if len(ids) < count:
        raise ValueError(f"the corpus has {len(ids)} tokens for {model}, not {count}")
    return ids[:count]
