"""The rows of a step as arrays for the kernel, and what came back.

What stays the same while a sequence sits on its seat is written once into arrays indexed by seat, so that a step
only gathers. Which rows a step has is decided elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gearshift.engine.local.constraints import Mask, mask_words
from gearshift.engine.local.scheduler import Step, blocks_for
from gearshift.engine.local.sequence import Choice, Counts

Ints = NDArray[np.int32]
Floats = NDArray[np.float32]

_PARAMETERS: dict[str, Any] = {
    "temperature": np.float32,
    "top_k": np.int32,
    "top_p": np.float32,
    "min_p": np.float32,
    "seed": np.uint64,
    "choice": np.int32,
    "presence_penalty": np.float32,
    "frequency_penalty": np.float32,
    "repetition_penalty": np.float32,
}


class Seats:
    """Arrays with a row for each sequence that may run at once."""

    def __init__(self, count: int, context: int, vocab: int) -> None:
        self.tables: Ints = np.full((count, blocks_for(context)), -1, np.int32)
        """Cache blocks by seat and position, as the kernel reads them."""
        self._parameters: dict[str, NDArray[Any]] = {name: np.zeros(count, t) for name, t in _PARAMETERS.items()}
        self._biases: dict[int, tuple[Ints, Floats]] = {}
        self._free = list(range(count - 1, -1, -1))
        self._gathered_for: list[Choice] = []
        self._gathered: dict[str, NDArray[Any]] | None = None
        """Arguments of the step before, good as long as the same sequences are chosen on the same seats."""
        self._no_masks: NDArray[np.uint32] = np.zeros((0, mask_words(vocab)), np.uint32)
        """What every row may choose from when no sequence has a grammar: no masks."""

    @property
    def free(self) -> int:
        """Seats that nobody sits on."""
        return len(self._free)

    def seat(self, choice: Choice) -> None:
        """Give a sequence a seat and write down its parameters."""
        self._gathered = None
        seat = choice.seat = self._free.pop()
        sampling = choice.turn.sampling
        for name, values in self._parameters.items():
            if name == "seed":
                values[seat] = choice.turn.seed % 2**64
            elif name == "choice":
                values[seat] = choice.index
            else:
                values[seat] = getattr(sampling, name)
        if sampling.logit_bias:
            ids, biases = zip(*sorted(dict(sampling.logit_bias).items()), strict=True)
            self._biases[seat] = np.array(ids, np.int32), np.array(biases, np.float32)

    def leave(self, choice: Choice) -> None:
        """The sequence gives up its seat."""
        self.tables[choice.seat] = -1
        self._biases.pop(choice.seat, None)
        self._free.append(choice.seat)
        choice.seat = -1

    def parameters(self, choices: list[Choice], places: Sequence[int]) -> dict[str, NDArray[Any]]:
        """The kernel's arguments about the choice of tokens, for the chosen rows in order. `places` says how many
        drafted tokens come before each row's choice: they count as if they were accepted."""
        if self._gathered is None or choices != self._gathered_for:
            self._gathered_for, self._gathered = choices[:], self._gather(choices)
        arguments = self._gathered
        if any(c.counts is not None for c in choices):
            offsets, ids, values = _sparse_rows(_counts(choices, places))
            arguments = {**arguments, "count_offsets": offsets, "count_ids": ids, "count_values": values}
        if any(c.matcher is not None for c in choices):
            index, masks = _masks(choices, places)
            arguments = {**arguments, "mask_index": index, "masks": masks}
        return arguments

    def _gather(self, choices: Sequence[Choice]) -> dict[str, NDArray[Any]]:
        seats = np.array([c.seat for c in choices], np.int32)
        none = np.zeros(len(choices) + 1, np.int32)
        offsets, ids, values = none, *_NO_BIASES
        if self._biases and choices:
            offsets, ids, values = _sparse_rows([self._biases.get(c.seat, _NO_BIASES) for c in choices])
        return {
            **{name: values[seats] for name, values in self._parameters.items()},
            "count_offsets": none,
            "count_ids": _NO_COUNTS[0],
            "count_values": _NO_COUNTS[1],
            "bias_offsets": offsets,
            "bias_ids": ids,
            "bias_values": values,
            "mask_index": np.full(len(choices), -1, np.int32),
            "masks": self._no_masks,
        }


_NO_COUNTS: tuple[Ints, Ints] = (np.zeros(0, np.int32), np.zeros(0, np.int32))
_NO_BIASES: tuple[Ints, Floats] = (np.zeros(0, np.int32), np.zeros(0, np.float32))


def _counts(choices: Sequence[Choice], places: Sequence[int]) -> list[tuple[Ints, Ints]]:
    """The counts of every row: those of its sequence, and of the drafts before it."""
    rows: list[tuple[Ints, Ints]] = []
    counts: Counts | None = None
    for choice, place in zip(choices, places, strict=True):
        if choice.counts is None:
            rows.append(_NO_COUNTS)
            continue
        if place == 0 or counts is None:
            counts = choice.counts
        else:
            counts = counts.copy() if place == 1 else counts
            counts.add(choice.draft[place - 1])
        # Copies: an array that lends its memory could not grow.
        rows.append((np.array(counts.ids, np.int32), np.array(counts.values, np.int32)))
    return rows


def _masks(choices: Sequence[Choice], places: Sequence[int]) -> tuple[Ints, NDArray[np.uint32]]:
    """The mask of every row (-1 for none), and the masks."""
    index: Ints = np.full(len(choices), -1, np.int32)
    masks: list[Mask] = []
    row = 0
    while row < len(choices):
        choice, first = choices[row], row
        row += 1
        while row < len(choices) and places[row]:
            row += 1
        if choice.matcher is not None:
            index[first:row] = range(len(masks), len(masks) + row - first)
            masks += choice.matcher.masks(choice.draft[: row - first - 1])
    return index, np.stack(masks)


def _sparse_rows(parts: Sequence[tuple[Ints, NDArray[Any]]]) -> tuple[Ints, Ints, NDArray[Any]]:
    """Pairs of (ids, values), one per row, as compressed sparse rows: offsets, ids, values."""
    offsets = np.zeros(len(parts) + 1, np.int32)
    np.cumsum([len(ids) for ids, _ in parts], out=offsets[1:])
    return offsets, np.concatenate([ids for ids, _ in parts]), np.concatenate([values for _, values in parts])


@dataclass(frozen=True, slots=True)
class Batch:
    """One step's arguments to the kernel.

    Attributes:
        choosers: the sequences that choose a token, in the order of the chosen rows; one with drafts is there once
            for each of its rows.
        arguments: of `Model.step`, by name.
        top_logprobs: alternatives to report.
    """

    choosers: list[Choice]
    arguments: dict[str, NDArray[Any]]
    top_logprobs: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """What the kernel returns: a token per chosen row, its log-probability, and alternatives."""

    ids: Ints
    logprobs: Floats
    top_ids: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int32))
    top_logprobs: Floats = field(default_factory=lambda: np.zeros((0, 0), np.float32))


Forward = Callable[[Batch], Chosen]
"""Runs a batch through the model. Raises whatever the kernel raises."""


def build(step: Step[Choice], seats: Seats) -> Batch:
    """The arrays of a step: streams first, then prompts, each in consecutive rows."""
    choosers = [c for c, _ in step.streams]
    places: Sequence[int] = [0] * len(choosers)
    if sum(rows for _, rows in step.streams) > len(choosers):
        choosers, places, tokens, positions = _with_drafts(step.streams)
    else:
        tokens = np.array([c.tokens[-1] for c in choosers], np.int32)
        positions = np.array([c.computed for c in choosers], np.int32)
    sequences: Ints = np.array([c.seat for c in choosers], np.int32)
    chosen: Ints = np.arange(len(choosers), dtype=np.int32)
    if step.prompts:
        row = len(choosers)
        last_rows: list[int] = []
        all_tokens, all_positions, all_sequences = [tokens], [positions], [sequences]
        for c, rows in step.prompts:
            end = c.computed + rows
            all_tokens.append(np.array(c.tokens[c.computed : end], np.int32))
            all_positions.append(np.arange(c.computed, end, dtype=np.int32))
            all_sequences.append(np.full(rows, c.seat, np.int32))
            row += rows
            if end == c.wanted:
                last_rows.append(row - 1)
                choosers.append(c)
        tokens, positions = np.concatenate(all_tokens), np.concatenate(all_positions)
        sequences = np.concatenate(all_sequences)
        chosen = np.concatenate((chosen, np.array(last_rows, np.int32)))
        places = [*places, *[0] * len(last_rows)]
    arguments: dict[str, NDArray[Any]] = {
        "tokens": tokens,
        "positions": positions,
        "sequences": sequences,
        "tables": seats.tables,
        "chosen": chosen,
        **seats.parameters(choosers, places),
    }
    return Batch(choosers, arguments, max((c.turn.sampling.logprobs or 0 for c in choosers), default=0))


def _with_drafts(streams: Sequence[tuple[Choice, int]]) -> tuple[list[Choice], list[int], Ints, Ints]:
    """The rows of streams of which some have drafts: choosers, places, tokens and positions."""
    choosers: list[Choice] = []
    places: list[int] = []
    tokens: list[int] = []
    positions: list[int] = []
    for c, rows in streams:
        choosers.extend([c] * rows)
        places.extend(range(rows))
        tokens.append(c.tokens[-1])
        tokens.extend(c.draft[: rows - 1])
        positions.extend(range(c.computed, c.computed + rows))
    return choosers, places, np.array(tokens, np.int32), np.array(positions, np.int32)
