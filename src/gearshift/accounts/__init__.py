"""Who asks, and what is settled when a turn ends. Keys, tanks and the ledger grow in this room."""

from gearshift.accounts.caller import LOCAL, Caller, Settle, Usage
from gearshift.accounts.keys import KeyRing, Unauthorized

__all__ = ["LOCAL", "Caller", "KeyRing", "Settle", "Unauthorized", "Usage"]
