"""The rate of several streams out of the moments at which their tokens arrived.

Streams start and end at different moments. Their common rate is counted only while all of them run: from the moment
when the last one has had its first tokens to the moment when the first one ends.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field


@dataclass(slots=True)
class Timeline:
    """Arrivals of one stream: moments in seconds, and how many tokens came at each."""

    moments: list[float] = field(default_factory=list[float])
    tokens: list[float] = field(default_factory=list[float])

    def arrived(self, moment: float, tokens: float) -> None:
        """Note an arrival; moments never go back."""
        self.moments.append(moment)
        self.tokens.append(tokens)

    def scaled_to(self, total: float) -> Timeline:
        """The same moments with tokens in proportion so that they add up to `total`.

        A client sees events, and an event may stand for more than one token; usage says how many there were.
        """
        factor = total / sum(self.tokens)
        return Timeline(list(self.moments), [each * factor for each in self.tokens])


def slack(streams: int) -> int:
    """Tokens to produce beyond the asked ones, so that streams run together for long enough: they start one by one
    while others already run, so the first may be ahead by about as many tokens as there are streams."""
    return 2 * streams


def common_window(streams: Sequence[Timeline], warmup: int) -> tuple[float, float, float]:
    """Begin and end of the time in which all streams run, and the tokens that arrived in it.

    warmup: arrivals of each stream that are not counted. Raises ValueError when the streams never run together.
    """
    if any(len(stream.moments) <= warmup for stream in streams):
        raise ValueError(f"A stream had no more than {warmup} arrivals: let it produce more tokens.")
    begin = max(stream.moments[warmup] for stream in streams)
    end = min(stream.moments[-1] for stream in streams)
    if end <= begin:
        raise ValueError("The first stream ended before the last one ran: let them produce more tokens.")
    tokens = sum(
        count
        for stream in streams
        for moment, count in zip(stream.moments, stream.tokens, strict=True)
        if begin < moment <= end
    )
    return begin, end, tokens
