"""What the service offers: one entry per model, as plain data that every other room may read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

EffortName = Literal["none", "low", "medium", "high", "xhigh", "max"]


@dataclass(frozen=True, slots=True)
class Upgrade:
    """Where the users of a model are asked to go.

    Attributes:
        model: the id of its successor.
        notice: what they read, in Markdown; it should name the date.
        retires_at: Unix time from which the model is no longer served; None when it stays.
    """

    model: str
    notice: str
    retires_at: int | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model on offer.

    Attributes:
        id: the name clients use.
        context_window: longest prompt plus answer, in tokens.
        chat: whether the model has a chat template; without one, chat requests use a plain generic format.
        created: Unix time shown in model lists.
        owner: who made the model, shown in model lists.
        aliases: other names under which it answers.
        efforts: reasoning efforts among which a user may choose, lightest first; none for a model that does not reason.
        default_effort: the one that it takes when nobody chose.
        upgrade: set when there is a successor.
    """

    id: str
    context_window: int
    chat: bool
    created: int
    owner: str
    aliases: tuple[str, ...] = field(default=())
    efforts: tuple[EffortName, ...] = ()
    default_effort: EffortName | None = None
    upgrade: Upgrade | None = None
