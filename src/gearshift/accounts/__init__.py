"""Keys today; tanks and the ledger grow in this room. The caller himself stands on the ground: `gearshift.caller`."""

from gearshift.accounts.keys import KeyRing, Unauthorized
from gearshift.caller import LOCAL, Caller, Settle, Usage

__all__ = ["LOCAL", "Caller", "KeyRing", "Settle", "Unauthorized", "Usage"]
