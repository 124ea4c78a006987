"""What transport needs of an endpoint: a request read from its body, and an answer that turns the engine's events into
bytes. An answer is a state machine without I/O, one per turn; streams and plain answers look alike from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from gearshift import __version__
from gearshift.accounts import Usage
from gearshift.catalog import ModelEntry
from gearshift.engine.protocol import EngineEvent
from gearshift.service import Asked
from gearshift.wire.errors import WireError

FINGERPRINT = f"gearshift-{__version__}"
"""`system_fingerprint`: answers under equal fingerprints and seeds are equal."""


class Answer(Protocol):
    """The bytes of one turn in one wire format."""

    def feed(self, batch: Sequence[EngineEvent]) -> bytes:
        """What a batch of events adds to the body: nothing yet, for a plain answer."""
        ...

    def end(self) -> bytes:
        """The rest of the body after the last batch."""
        ...

    def fail(self, error: WireError) -> bytes:
        """The rest of a stream whose turn broke after its head had left."""
        ...


@dataclass(frozen=True, slots=True)
class Heading:
    """What an answer must know of its turn besides its events. `usage` gives the counts up to now."""

    turn_id: str
    created: int
    model: ModelEntry
    usage: Callable[[], Usage]


class Request(Protocol):
    """A body that was read and found right."""

    @property
    def stream(self) -> bool:
        """Whether the answer leaves event by event."""
        ...

    def asked(self) -> Sequence[Asked]:
        """The turns in our words: one, except for several prompts in one legacy request. Choices of a later turn
        follow those of the earlier ones."""
        ...

    def answer(self, heading: Heading) -> Answer:
        """A fresh answer to this request."""
        ...

    def fields(self) -> dict[str, str]:
        """Our words for fields that errors may name -> their names in this request."""
        ...
