"""Last hidden states of the reference, kept in the cache folder, since numpy takes minutes for thousands of tokens.

A stored result is named by everything that it follows from: the model file, the tokens, the rounding and the source
text of the reference itself. States are small; logits are made from them when they are compared.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from tests.reference import rounding
from tests.reference.decoder import Decoder
from tests.reference.rounding import Rounding
from tests.reference.weights import F32, ReferenceFile

ROUNDINGS: dict[str, Rounding] = {"exact": rounding.exact, "bfloat16": rounding.bfloat16}

_SOURCES = ("architecture.py", "decoder.py", "rounding.py", "weights.py")


class StoredReference:
    """A decoder whose states are stored in `folder`.

    sha256: digest of the model file.
    run: `exact` or `bfloat16`.
    """

    def __init__(self, path: Path, sha256: str, folder: Path, run: str = "exact") -> None:
        self.decoder = Decoder(ReferenceFile(path, folder / f"{sha256[:16]}.index.json"), ROUNDINGS[run])
        self._key = f"{sha256} {run} {_source_digest()}"
        self._folder = folder

    def states(self, tokens: NDArray[np.int64]) -> F32:
        """[tokens, d_model]; computed the first time."""
        digest = hashlib.sha256(self._key.encode() + tokens.tobytes()).hexdigest()[:32]
        stored = self._folder / f"{digest}.states.npy"
        if stored.exists():
            return np.load(stored)
        states = self.decoder.hidden(tokens)
        self._folder.mkdir(parents=True, exist_ok=True)
        draft = stored.with_name(f"{digest}.part.npy")
        np.save(draft, states)
        draft.replace(stored)
        return states

    def logits(self, states: F32) -> F32:
        """[rows, vocab]; hand in a few hundred rows at a time."""
        return self.decoder.logits(states)


def _source_digest() -> str:
    digest = hashlib.sha256()
    for name in _SOURCES:
        digest.update((Path(__file__).parent / name).read_bytes())
    return digest.hexdigest()
