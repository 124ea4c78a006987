"""API keys of an open or a closed server. A key is kept only as its SHA-256 digest; every presented key is
compared with every known digest in constant time. Which tanks a key may draw from grows elsewhere in this room.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable

from gearshift.caller import LOCAL, Caller


class Unauthorized(Exception):
    """No key, or one that is not known, where a key is needed."""


class KeyRing:
    """The keys that open this server. Without any key the server is open and everybody is `local`."""

    def __init__(self, keys: Iterable[str] = ()) -> None:
        digests = dict.fromkeys(hashlib.sha256(key.encode()).digest() for key in keys)
        self._callers = {digest: _caller(digest) for digest in digests}

    @classmethod
    def from_text(cls, text: str) -> KeyRing:
        """Keys separated by commas or white space, as in GEARSHIFT_API_KEYS."""
        return cls(text.replace(",", " ").split())

    @property
    def open(self) -> bool:
        """Whether everybody may come in."""
        return not self._callers

    def caller(self, key: str | None) -> Caller:
        """Who presents `key`.

        Raises:
            Unauthorized: the server has keys, and this is none of them.
        """
        if self.open:
            return LOCAL
        if not key:
            raise Unauthorized("You didn't provide an API key. Send it as 'Authorization: Bearer KEY'.")
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
