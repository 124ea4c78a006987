"""Drafting: guesses of how a sequence goes on, without a second model.

A guess costs rows, never the answer: verification keeps what the model itself chooses.
"""

from gearshift.engine.local.drafting.draft import NO_DRAFT, Draft, Drafter
from gearshift.engine.local.drafting.recent import Recent, RecentOutputs
from gearshift.engine.local.drafting.turn import TurnDrafts

__all__ = ["NO_DRAFT", "Draft", "Drafter", "Recent", "RecentOutputs", "TurnDrafts"]
