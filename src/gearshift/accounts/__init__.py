"""Who asks, and what is settled when a turn ends. Keys, tanks and the ledger grow in this room."""

from gearshift.accounts.caller import LOCAL, Caller, Settle, Usage

__all__ = ["LOCAL", "Caller", "Settle", "Usage"]
