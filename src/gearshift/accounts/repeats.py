"""`Idempotency-Key`: a turn that is asked for again under the same key is one turn. A finished answer is kept and given
again; an unfinished turn runs again under the same ids and seeds, and so gives the same answer, on the same charge.

What a request and its answer look like is the caller's matter: here they are a digest and bytes.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from dataclasses import dataclass

from sqlalchemy import Engine, delete, insert, select, update
from sqlalchemy.exc import IntegrityError

from gearshift.accounts.tables import answers

KEPT_S = 24 * 3600
"""How long a key stands for its turn."""
KEPT_BYTES = 4 << 20
"""Longest answer that is kept; a longer one is generated again."""


class KeyReused(Exception):
    """The key stands for another request, or for one that is running now."""


@dataclass(frozen=True, slots=True)
class Claim:
    """The right to run the turns of a key. `repeated` when they may have run before."""

    account: str
    key: str
    created: int
    repeated: bool

    def turn_id(self, index: int) -> str:
        """The id of the key's turn of this number: the same whenever it runs."""
        return self._hash(index).hex()[:24]

    def seed(self, index: int) -> int:
        """A seed below 2**53, for a turn that names none."""
        return int.from_bytes(self._hash(index)[16:]) >> (128 - 53)

    def _hash(self, index: int) -> bytes:
        # `created` is part of it: a key that is used again much later is another turn with another charge.
        return hashlib.sha256(f"{self.account}\0{self.key}\0{self.created}\0{index}".encode()).digest()


@dataclass(frozen=True, slots=True)
class Kept:
    """A finished answer."""

    content_type: bytes
    body: bytes


class Repeats:
    """The keys of one database."""

    def __init__(self, database: Engine, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock
        self._running: set[tuple[str, str]] = set()

    async def claim(self, account: str, key: str, digest: bytes) -> Claim | Kept:
        """Take a key for a request, or the answer that it has already. `release` a claim in the end.

        Raises:
            KeyReused: the key was used with another digest, or its request is running.
        """
        if (account, key) in self._running:
            raise KeyReused(f"A request with the idempotency key {key!r} is running. Wait for its end, then ask again.")
        self._running.add((account, key))
        try:
            found = await asyncio.to_thread(self._claim, account, key, digest)
        except BaseException:
            self._running.discard((account, key))
            raise
        if isinstance(found, Kept):
            self._running.discard((account, key))
        return found

    async def finish(self, claim: Claim, answer: Kept) -> None:
        """Keep the answer of a claim."""
        if len(answer.body) <= KEPT_BYTES:
            await asyncio.to_thread(self._finish, claim, answer)

    def release(self, claim: Claim) -> None:
        """The turns of a claim are over, finished or not."""
        self._running.discard((claim.account, claim.key))

    def _claim(self, account: str, key: str, digest: bytes) -> Claim | Kept:
        now = int(self._clock())
        with self._database.begin() as connection:
            connection.execute(delete(answers).where(answers.c.created < now - KEPT_S))
            row = connection.execute(
                select(answers).where(answers.c.account == account, answers.c.key == key)
            ).one_or_none()
            if row is None:
                try:
                    values = {"account": account, "key": key, "digest": digest, "created": now}
                    connection.execute(insert(answers).values(values))
                except IntegrityError:
                    raise KeyReused(f"Another server took the idempotency key {key!r} just now. Ask again.") from None
                return Claim(account, key, now, repeated=False)
        if row.digest != digest:
            raise KeyReused(f"The idempotency key {key!r} stands for another request. Use a new key for a new request.")
        if row.body is not None:
            return Kept(row.content_type, row.body)
        return Claim(account, key, row.created, repeated=True)

    def _finish(self, claim: Claim, answer: Kept) -> None:
        own = (answers.c.account == claim.account) & (answers.c.key == claim.key) & (answers.c.created == claim.created)
        with self._database.begin() as connection:
            connection.execute(
                update(answers).where(own).values(content_type=answer.content_type, body=answer.body),
            )
