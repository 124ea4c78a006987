"""A network that loses every WebSocket in the middle of its answer, and leaves everything else alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Generator


@contextlib.contextmanager
def breaking(port: int, at: bytes) -> Generator[int]:
    """A port that leads to another, until `at` comes back on a connection that was upgraded."""
    loop = asyncio.new_event_loop()
    listening = loop.run_until_complete(_listen(port, at))
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.run_until_complete(_end(listening))
        loop.close()


async def _end(listening: asyncio.Server) -> None:
    listening.close()
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    # Transports close in the turn of the loop after the one in which they are told.
    await asyncio.sleep(0.05)


async def _listen(port: int, at: bytes) -> asyncio.Server:
    async def led(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there_reader, there = await asyncio.open_connection("127.0.0.1", port)

        async def back() -> None:
            upgraded = False
            while data := await there_reader.read(1 << 16):
                upgraded = upgraded or data.startswith(b"HTTP/1.1 101")
                writer.write(data)
                if upgraded and at in data:
                    return

        async def forth() -> None:
            while data := await reader.read(1 << 16):
                there.write(data)

        tasks = [asyncio.create_task(back()), asyncio.create_task(forth())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
            there.close()
            writer.close()

    return await asyncio.start_server(led, "127.0.0.1", 0)
