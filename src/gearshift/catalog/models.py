"""What the service offers: one entry per model, as plain data that every other room may read."""

from __future__ import annotations

from dataclasses import dataclass, field


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
    """

    id: str
    context_window: int
    chat: bool
    created: int
    owner: str
    aliases: tuple[str, ...] = field(default=())
