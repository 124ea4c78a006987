"""Requests with an idempotency key: finished ones are given again, unfinished ones run again as the same turn."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from gearshift.accounts.repeats import KEPT_S, Claim, Kept, KeyReused, Repeats
from gearshift.accounts.tables import open_database, sqlite_url
from tests.server.test_tanks import COST, PROMPT, metered

KEY = {"idempotency-key": "order-66"}
BODY = {"model": "scripted", "prompt": PROMPT, "max_tokens": 20}


@pytest.mark.parametrize("stream", [False, True])
def test_a_finished_turn_is_given_again_and_charged_once(tmp_path: Path, stream: bool) -> None:
    with metered(tmp_path) as it:
        body = BODY | {"stream": stream}
        first = it.client.post("/v1/completions", json=body, headers=KEY)
        assert first.status_code == 200 and "x-gearshift-replayed" not in first.headers
        again = it.client.post("/v1/completions", json=body, headers=KEY)
        assert (again.status_code, again.content) == (200, first.content)
        assert again.headers["x-gearshift-replayed"] == "true"
        assert again.headers["content-type"] == first.headers["content-type"]
        assert len(it.server.settled) == 1
        assert it.charges() == [("main", "standard", pytest.approx(COST))]


def test_an_unfinished_turn_runs_again_with_the_same_id_and_seed_on_the_same_charge(tmp_path: Path) -> None:
    with metered(tmp_path, pause_s=0.02) as it:
        body = BODY | {"stream": True}
        with it.client.stream("POST", "/v1/completions", json=body, headers=KEY) as response:
            next(response.iter_text())
        it.server.wait_settled(1)
        whole = it.client.post("/v1/completions", json=body, headers=KEY)
        assert "[DONE]" in whole.text and "x-gearshift-replayed" not in whole.headers
        first, second = it.server.engine.seen
        assert first.turn_id == second.turn_id
        assert first.sampling.seed is not None and first.sampling.seed < 2**53
        assert first.sampling.seed == second.sampling.seed
        assert it.charges() == [("main", "standard", pytest.approx(COST))]
        assert it.client.post("/v1/completions", json=body, headers=KEY).content == whole.content


def test_a_seed_that_was_asked_for_stays(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        it.client.post("/v1/completions", json=BODY | {"seed": 7}, headers=KEY)
        it.client.post("/v1/completions", json=BODY | {"prompt": [PROMPT, PROMPT]}, headers={"idempotency-key": "two"})
        seen = it.server.engine.seen
        assert seen[0].sampling.seed == 7
        assert len({one.turn_id for one in seen}) == len({one.sampling.seed for one in seen}) == 3


def test_another_body_under_the_same_key_is_a_conflict(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        it.client.post("/v1/completions", json=BODY, headers=KEY)
        other = it.client.post("/v1/completions", json=BODY | {"max_tokens": 21}, headers=KEY)
        assert other.status_code == 409
        assert other.json()["error"]["code"] == "idempotency_key_reused"
        assert "'order-66' stands for another request" in other.json()["error"]["message"]
        assert it.client.post("/v1/chat/completions", json=BODY, headers=KEY).status_code in (400, 409)
        assert len(it.charges()) == 1


def test_a_key_whose_turn_is_running_is_a_conflict(tmp_path: Path) -> None:
    with metered(tmp_path, pause_s=0.02) as it:
        body = BODY | {"stream": True}
        with it.client.stream("POST", "/v1/completions", json=body, headers=KEY) as response:
            chunks = response.iter_text()
            next(chunks)
            refused = it.client.post("/v1/completions", json=body, headers=KEY)
            assert refused.status_code == 409 and "is running" in refused.json()["error"]["message"]
            assert "[DONE]" in "".join(chunks)


def test_what_failed_is_not_kept(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        body = BODY | {"prompt": "break-early"}
        for _ in range(2):
            failed = it.client.post("/v1/completions", json=body, headers=KEY)
            assert failed.status_code == 500 and "x-gearshift-replayed" not in failed.headers
        assert it.charges() == [("main", "standard", 0)]


def test_a_key_of_no_length_or_too_much(tmp_path: Path) -> None:
    with metered(tmp_path) as it:
        refused = it.client.post("/v1/completions", json=BODY, headers={"idempotency-key": "k" * 256})
        assert refused.status_code == 400 and "1 to 255 characters" in refused.json()["error"]["message"]


def test_keys_belong_to_accounts_and_end(tmp_path: Path) -> None:
    database = open_database(sqlite_url(tmp_path / "accounts.db"))
    now = [1_800_000_000.0]
    repeats = Repeats(database, lambda: now[0])

    def claimed(account: str, digest: bytes = b"d") -> Claim | Kept:
        found = asyncio.run(repeats.claim(account, "k", digest))
        if isinstance(found, Claim):
            repeats.release(found)
        return found

    ann, bob = claimed("ann"), claimed("bob", b"e")
    assert isinstance(ann, Claim) and isinstance(bob, Claim)
    assert not ann.repeated and ann.turn_id(0) != bob.turn_id(0) and ann.turn_id(0) != ann.turn_id(1)
    with pytest.raises(KeyReused):
        claimed("ann", b"e")
    asyncio.run(repeats.finish(ann, Kept(b"text/plain", b"answer")))
    assert claimed("ann") == Kept(b"text/plain", b"answer")
    now[0] += KEPT_S + 1
    later = claimed("ann", b"e")
    assert isinstance(later, Claim) and not later.repeated and later.turn_id(0) != ann.turn_id(0)
    database.dispose()


def test_many_at_once_under_one_key_run_once(tmp_path: Path) -> None:
    with metered(tmp_path, pause_s=0.005) as it, ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(it.client.post, "/v1/completions", json=BODY, headers=KEY) for _ in range(8)]
        answers = [one.result() for one in asked]
        assert {one.status_code for one in answers} <= {200, 409}
        assert len({one.content for one in answers if one.status_code == 200}) == 1
        assert len(it.server.engine.seen) == 1
