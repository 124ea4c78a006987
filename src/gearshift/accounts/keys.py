"""Who a key belongs to. Keys come from the environment (unmetered, each an account of its own) and from the directory
of accounts; each is kept only as its SHA-256 digest and compared in constant time. What an account may draw is the
meter's matter.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gearshift.caller import LOCAL, Caller

if TYPE_CHECKING:
    # Brings in the database, which an open server does without.
    from gearshift.accounts.directory import Directory


class Unauthorized(Exception):
    """No key, or one that is not known, where a key is needed."""


class KeyRing:
    """The keys that open this server. Without any key or account the server is open and everybody is `local`."""

    def __init__(self, keys: Iterable[str] = (), directory: Directory | None = None) -> None:
        digests = dict.fromkeys(hashlib.sha256(key.encode()).digest() for key in keys)
        self._callers = {digest: _caller(digest) for digest in digests}
        self._directory = directory

    @classmethod
    def from_text(cls, text: str, directory: Directory | None = None) -> KeyRing:
        """Keys separated by commas or white space, as in GEARSHIFT_API_KEYS."""
        return cls(text.replace(",", " ").split(), directory)

    @property
    def open(self) -> bool:
        """Whether everybody may come in."""
        return not self._callers and (self._directory is None or self._directory.empty)

    def caller(self, key: str | None) -> Caller:
        """Who presents `key`.

        Raises:
            Unauthorized: the server has keys, and this is none of them.
        """
        if self.open:
            return LOCAL
        if not key:
            raise Unauthorized("You didn't provide an API key. Send it as 'Authorization: Bearer KEY'.")
        if self._directory is not None and (account := self._directory.find(key)) is not None:
            return Caller(account=account.name, cache_scope=account.name)
        presented = hashlib.sha256(key.encode(errors="surrogateescape")).digest()
        found: Caller | None = None
        # No early exit: the time taken must not tell how far down the list a key stands.
        for digest, caller in self._callers.items():
            if hmac.compare_digest(digest, presented):
                found = caller
        if found is None:
            raise Unauthorized("Incorrect API key provided.")
        return found


def _caller(digest: bytes) -> Caller:
    """An account named after the digest, so that a key keeps its account when others come and go."""
    account = f"key-{digest.hex()[:12]}"
    return Caller(account=account, cache_scope=account)
