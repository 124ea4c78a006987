"""Accounts, keys, tanks and the ledger. The caller himself stands on the ground: `gearshift.caller`.

What needs the database is not brought in here: an open server does without it (see `opening`).
"""

from gearshift.accounts.keys import KeyRing, Unauthorized
from gearshift.accounts.refusals import BooksUnavailable, TankEmpty
from gearshift.caller import LOCAL, Caller, Settle, Usage

__all__ = ["LOCAL", "BooksUnavailable", "Caller", "KeyRing", "Settle", "TankEmpty", "Unauthorized", "Usage"]
