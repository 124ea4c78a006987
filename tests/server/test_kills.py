"""A server that is killed in the middle of a stream: the next one charges what was recorded, and a client that asks
again under its idempotency key gets the same answer, whole, as the same turn.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import httpx
from sqlalchemy import select

from gearshift.accounts.audit import audit
from gearshift.accounts.directory import create_account, create_key
from gearshift.accounts.prices import MICRO
from gearshift.accounts.tables import open_database, sqlite_url, turns
from tests.server.metered_main import PLAN

BODY = {"model": "scripted", "prompt": "a b", "max_tokens": 300, "seed": 7, "ignore_eos": True, "stream": True}


@contextmanager
def killed(url: str, key: str) -> Generator[httpx.Client]:
    """A client of a server that dies without notice at the end."""
    command = [sys.executable, "-m", "tests.server.metered_main", url]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            headers = {"authorization": f"Bearer {key}", "idempotency-key": "k"}
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
                yield client
        finally:
            process.send_signal(signal.SIGKILL)


def texts(lines: list[str]) -> tuple[str, list[str]]:
    """The id of an answer, and its pieces of text."""
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return chunks[0]["id"], [choice["text"] for chunk in chunks for choice in chunk["choices"] if choice["text"]]


def test_a_killed_stream_is_charged_as_recorded_and_asked_for_again(tmp_path: Path) -> None:
    url = sqlite_url(tmp_path / "accounts.db")
    database = open_database(url)
    create_account(database, "ann", PLAN.name, time.time())
    key = create_key(database, "ann", time.time())

    def booked() -> tuple[str, int, int, int | None]:
        with database.connect() as connection:
            row = connection.execute(select(turns)).one()
        return row.id, row.charge, row.output_tokens, row.closed

    received: list[str] = []
    with killed(url, key) as client, client.stream("POST", "/v1/completions", json=BODY) as response:
        for line in response.iter_lines():
            received.append(line)
            if len(received) == 200:
                break
    first_id, first = texts(received)
    _, _, recorded, closed = booked()
    assert 0 < recorded < 300 and closed is None

    with killed(url, key) as client:
        turn_id, charge, output, closed = booked()
        assert closed is not None and output == recorded
        # Two words of the prompt, both cached, and what was recorded of the answer.
        assert charge == 2 * MICRO // 10_000 + recorded * 4 * MICRO // 1000
        assert audit(database, open_turns=False) == []
        whole_id, whole = texts(client.post("/v1/completions", json=BODY).text.splitlines())
        assert whole_id == first_id and whole_id.endswith(turn_id)
        assert whole[: len(first)] == first and len(whole) == 300
        replayed = client.post("/v1/completions", json=BODY)
        assert replayed.headers["x-gearshift-replayed"] == "true"
        assert texts(replayed.text.splitlines()) == (whole_id, whole)
        while booked()[3] is None:
            time.sleep(0.01)
    with killed(url, key):
        assert booked()[0] == turn_id and booked()[2] == 300
        assert audit(database, open_turns=False) == []
    database.dispose()
