"""A request that carries an `Idempotency-Key`: its answer is recorded while it leaves, and given again to who asks
again. What a key means is in `accounts.repeats`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from dataclasses import replace
from types import TracebackType
from typing import TYPE_CHECKING, Self

from starlette.types import Message, Scope, Send

from gearshift.caller import Caller
from gearshift.server.answers import send_bytes
from gearshift.service import Turn
from gearshift.wire.errors import WireError, invalid

if TYPE_CHECKING:
    # Brings in the database, which an open server does without.
    from gearshift.accounts.repeats import Claim, Repeats

_log = logging.getLogger(__name__)

_LONGEST_KEY = 255
_COMMENT = b":"
"""How a part begins that only kept the connection busy: it is no part of the answer."""
_PATIENCE_S = 2.0
"""How long the end of an answer waits until it is kept."""


class Repeating:
    """One request under its key, if it has one: a context in which its answer leaves by `send`."""

    def __init__(self, repeats: Repeats | None, send: Send) -> None:
        self.claim: Claim | None = None
        self._repeats = repeats
        self._send = send
        self._status = 0
        self._content_type = b""
        self._parts: list[bytes] = []
        self._turns: list[Turn] = []

    async def begin(self, scope: Scope, caller: Caller, body: bytes) -> bool:
        """Take the key. Returns whether the answer was there and has been sent. Raises WireError."""
        key = _key(scope)
        if self._repeats is None or key is None:
            return False
        from gearshift.accounts.repeats import Kept, KeyReused

        digest = hashlib.sha256(scope["path"].encode() + b"\0" + body).digest()
        try:
            found = await self._repeats.claim(caller.account, key, digest)
        except KeyReused as error:
            raise WireError(409, str(error), code="idempotency_key_reused") from None
        if isinstance(found, Kept):
            headers = [(b"content-type", found.content_type), (b"x-gearshift-replayed", b"true")]
            await send_bytes(self._send, found.body, status=200, headers=headers)
            return True
        self.claim = found
        return False

    def named(self, turns: list[Turn]) -> list[Turn]:
        """The turns of the request under the ids and seeds that their key gives them."""
        self._turns = turns
        if self.claim is not None:
            for index, turn in enumerate(turns):
                turn.id, turn.repeated = self.claim.turn_id(index), self.claim.repeated
                sampling = turn.asked.sampling
                if sampling.seed is None:
                    turn.asked = replace(turn.asked, sampling=replace(sampling, seed=self.claim.seed(index)))
        return turns

    async def send(self, message: Message) -> None:
        """Send, and remember. An answer is kept before its end leaves: who asks again then finds it."""
        if self.claim is not None:
            if message["type"] == "http.response.start":
                self._status = message["status"]
                self._content_type = dict(message["headers"]).get(b"content-type", b"")
            elif not (part := message.get("body", b"")).startswith(_COMMENT):
                self._parts.append(part)
            if message["type"] == "http.response.body" and not message.get("more_body", False):
                await self._end()
        await self._send(message)

    async def _end(self) -> None:
        if self._status == 200 and all(turn.ending == "finished" for turn in self._turns):
            await self._keep()
        self._release()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._release()

    async def _keep(self) -> None:
        from gearshift.accounts.repeats import Kept

        assert self.claim is not None and self._repeats is not None, "only what has a key is recorded"
        kept = self._repeats.finish(self.claim, Kept(self._content_type, b"".join(self._parts)))
        try:
            async with asyncio.timeout(_PATIENCE_S):
                await kept
        except Exception:
            _log.exception("an answer could not be kept; asked for again, it is generated again")

    def _release(self) -> None:
        if self.claim is not None and self._repeats is not None:
            self._repeats.release(self.claim)
            self.claim = None


def _key(scope: Scope) -> str | None:
    for name, value in scope["headers"]:
        if name == b"idempotency-key":
            if not 0 < len(value) <= _LONGEST_KEY:
                raise invalid(f"An idempotency key has 1 to {_LONGEST_KEY} characters, this one {len(value)}.", None)
            return value.decode("latin-1")
    return None
