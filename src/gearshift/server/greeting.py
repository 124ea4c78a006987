"""What a server says when it is ready: where it is, what it holds in memory, and what to try next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from gearshift import __version__
from gearshift.catalog import ModelEntry


@dataclass(frozen=True, slots=True)
class MemoryPart:
    """Something that stays in memory."""

    name: str
    bytes: int


def greeting(url: str, models: Sequence[ModelEntry], memory: Iterable[MemoryPart], *, keys: bool, took_s: float) -> str:
    """The whole message. `keys`: whether callers need one."""
    names = ", ".join(entry.id for entry in models)
    who = "with a key of GEARSHIFT_API_KEYS or of an account" if keys else "open to this machine, no key needed"
    return "\n".join(
        (
            f"Gearshift {__version__} serves {names} on {url} ({who}); ready after {took_s:.1f} s.",
            "",
            *_memory(memory),
            "",
            *_tries(url, models[0], keys),
            "",
            "Stop with Ctrl-C: running streams may end first, a second Ctrl-C ends them at once.",
        )
    )


def url_of(host: str, port: int) -> str:
    """The address that a client on this machine uses."""
    if host in ("0.0.0.0", "::"):
        host = "127.0.0.1" if host == "0.0.0.0" else "::1"
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def resident_bytes() -> int:
    """Memory of this process that is in use now; what it only maps does not count until it is touched."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) * 1024
    return 0


def _memory(parts: Iterable[MemoryPart]) -> list[str]:
    rows = [(part.name, f"{part.bytes / 1e6:,.0f} MB") for part in parts]
    width = max(len(name) for name, _ in rows)
    size = max(len(amount) for _, amount in rows)
    return ["Memory:", *(f"  {name:<{width}}  {amount:>{size}}" for name, amount in rows)]


def _tries(url: str, model: ModelEntry, keys: bool) -> list[str]:
    path, body, call = _chat(model) if model.chat else _completion(model)
    header = " -H 'Authorization: Bearer KEY'" if keys else ""
    return [
        "Try it:",
        f"  curl {url}/v1/{path}{header} -H 'Content-Type: application/json' \\",
        f"    -d '{body}'",
        "",
        "or from Python, after `pip install openai`:",
        "  from openai import OpenAI",
        f'  client = OpenAI(base_url="{url}/v1", api_key="{"KEY" if keys else "unused"}")',
        f"  print({call})",
    ]


def _chat(model: ModelEntry) -> tuple[str, str, str]:
    return (
        "chat/completions",
        f'{{"model": "{model.id}", "max_tokens": 200, '
        '"messages": [{"role": "user", "content": "What is a mutex?"}]}',
        f'client.responses.create(model="{model.id}", input="What is a mutex?", max_output_tokens=200).output_text',
    )


def _completion(model: ModelEntry) -> tuple[str, str, str]:
    return (
        "completions",
        f'{{"model": "{model.id}", "prompt": "def fibonacci(n):", "max_tokens": 64}}',
        f'client.completions.create(model="{model.id}", prompt="def fibonacci(n):", max_tokens=64).choices[0].text',
    )
