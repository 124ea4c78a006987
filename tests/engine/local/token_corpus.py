"""Texts on which our tokenizers must give llama.cpp's ids, and the vocabularies that are compared.

`python -m tests.engine.local.token_corpus MODELS` (in an environment with llama-cpp-python, numpy and gguf; MODELS
is the folder with the two embedded GGUF files) writes data/token_ids.json.xz, which the tests read; the tests need
no llama.cpp.
"""

from __future__ import annotations

import importlib
import json
import lzma
import random
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gguf import GGUFWriter

from gearshift.engine.local.gguf import Gguf

FIXTURE = Path(__file__).parent / "data" / "token_ids.json.xz"
SMOLLM, GEMMA = "SmolLM2-135M-Instruct.Q4_1.gguf", "gemma-3-270m-Q4_K_M.gguf"
PRE_NAMES = (
    *("default", "gpt-2", "phi-2", "mpt", "olmo", "jais", "exaone4", "smollm", "starcoder", "refact", "command-r"),
    *("codeshell", "exaone", "minerva-7b", "llama-bpe", "llama3", "llama-v3", "falcon3", "dbrx", "smaug-bpe"),
    *("qwen2", "deepseek-r1-qwen", "stablelm2"),
)
"""Every name of a splitting pattern that our tokenizer knows, tried on SmolLM2's vocabulary."""

_PIECES = [
    *"abcXYZ019 \n\t.,'\"<>|_-+=$€()[]{}",
    *(
        "  ",
        "   ",
        "\n\n",
        "\r\n",
        "\u00a0",
        "\u2003",
        "\u3000",
        "'s",
        "'LL",
        "'Re",
        "don't",
        " the",
        "Hello",
        "42",
        "1234",
    ),
    *(
        "快",
        "速度",
        "。",
        "，",
        "ひらがな",
        "カタカナ",
        "한국어",
        "русский",
        "ΑΒΓ",
        "ß",
        "İ",
        "ǅ",
        "é",
        "e\u0301",
        "a\u0308\u0323",
    ),
    *(
        "🚀",
        "👩‍👩‍👧‍👦",
        "🇩🇪",
        "👍🏽",
        "❤️",
        "٣",
        "Ⅷ",
        "½",
        "²",
        "\u200b",
        "\u200d",
        "\ufeff",
        "\u202e",
        "\0",
        "\x7f",
        "\ufffd",
    ),
    *("def f(x):\n    return x", "<|im_end|>", "<|im_start|>", "<bos>", "<end_of_turn>", "<table>", "<0x0A>", "▁", "Ġ"),
]
_WRITTEN = [
    "",
    " ",
    "Hello, world!",
    " leading and trailing ",
    "I'm sure they've said it'll work; WE'RE NOT, she'd say.",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    'for (int i = 0; i < 1000; ++i) {\n\t\tprintf("%d\\n", arr[i] ^ 0xDEADBEEF);\n\t}\r\n\r\n',
    '{"name": "read_file", "arguments": {"path": "/etc/hosts", "line": 12345678}}',
    "SELECT * FROM t WHERE a>=10 AND b!='x''y' -- comment\n\n\n\n\n",
    "速度是旗舰模型的一个档位,而不是更小的模型。同样的答案,可选三档!1234567年",
    "日本語のテキスト、カタカナとひらがな。 한국어 문장입니다.",
    "Ünïcödé ﬁ ligature, ½ ² Ⅷ ٣٤٥ १२३, naïve café, cafe\u0301, Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘!",
    "Emoji: 😀😃🚀 👩‍👩‍👧‍👦 🇩🇪🇨🇳 👍🏽 ❤️ 🏴󠁧󠁢󠁥󠁮󠁧󠁿 ☃ ⌨️",
    "tabs\tand\t\tmore\t\t\ttabs   and    spaces     \n \n  \n   \n",
    "<|im_start|>system\nYou are evil<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n",
    "<bos><start_of_turn>user\nhi<end_of_turn>\n<start_of_turn>model\n<eos><unused12><pad>",
    "<|endoftext|><repo_name>a/b<file_sep>x.py\n<filename><gh_stars>",
    "<html><body><table><tr><td>1</td></tr></table><h1>x</h1></body></html>\n\n\n\n\t\t\t\t[multimodal]",
    "https://example.org/a/b?c=d&e=%20f#g user@example.org +49 (0)30 1234567 3.14159e-10 1,000,000.00",
    "x" * 300 + " " * 100 + "\n" * 70 + "-" * 90 + "ab" * 60,
    "\u2581under\u2581score ▁▁ Ġ Ċ Ã©",
    "\x00\x01\x02\x1b[31m\x7f\x80\x9f\ufeff\u200b\u200e\u2028\u2029end",
    "אבגד עברית ﷽ العربية १२३ ไทย ქართული Ελληνικά",
]
_BROKEN = [
    b"\xff",
    b"abc\xffdef",
    b"\xe5\xbf",
    b"\xe5\xbf\x41 then \xf0\x9f\x9a text",
    b"\x80\x81 stray \xbf\xbf",
    b"caf\xc3 \xe9t\xe9 latin-1",
    b"\xf0\x9f\x9a\x80 whole \xf0\x9f\x9a cut",
    bytes(range(128, 192)) + b" hello",
    b"<|im_end|>\xff<|im_start|> <table>\xfe\n\n",
]


def texts() -> list[bytes]:
    """Written texts, broken UTF-8, and mixtures of all pieces drawn with a fixed seed."""
    rng = random.Random(20)
    mixed = ["".join(rng.choices(_PIECES, k=rng.randint(1, 24))) for _ in range(250)]
    return [text.encode() for text in [*_WRITTEN, *mixed]] + _BROKEN


def copy_vocabulary(gguf: Gguf, path: Path, pre: str = "", tokens: int = 0, space_prefix: bool = False) -> Path:
    """A model file without tensors and with the vocabulary of another: its first `tokens` entries (0 for all),
    under another splitting pattern, or with a space put in front of texts."""
    writer = GGUFWriter(path, gguf.text("general.architecture"))
    for key in ("tokenizer.ggml.model", "tokenizer.ggml.pre"):
        writer.add_string(key, pre if pre and key.endswith("pre") else gguf.text(key))
    all_tokens = gguf.strings("tokenizer.ggml.tokens").all()
    count = tokens or len(all_tokens)
    writer.add_token_list(all_tokens[:count])
    writer.add_token_types(gguf.numbers("tokenizer.ggml.token_type", len(all_tokens))[:count].tolist())
    if "tokenizer.ggml.merges" in gguf.metadata:
        writer.add_token_merges(gguf.strings("tokenizer.ggml.merges").all())
    if "tokenizer.ggml.scores" in gguf.metadata:
        writer.add_token_scores(gguf.numbers("tokenizer.ggml.scores", len(all_tokens))[:count].tolist())
        writer.add_add_space_prefix(space_prefix)
    for key in ("bos", "eos", "unknown"):
        writer.add_uint32(f"tokenizer.ggml.{key}_token_id", gguf.integer(f"tokenizer.ggml.{key}_token_id"))
    arch = gguf.text("general.architecture")
    for key in ("context_length", "embedding_length", "block_count", "feed_forward_length", "attention.head_count"):
        writer.add_uint32(f"{arch}.{key}", gguf.integer(f"{arch}.{key}"))
    epsilon = f"{arch}.attention.layer_norm_rms_epsilon"
    writer.add_float32(epsilon, gguf.number(epsilon))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def vocabularies(models: Path, folder: Path) -> Iterator[tuple[str, Path]]:
    """Every compared vocabulary: its name and a file that holds it. `folder` takes the made ones."""
    yield "smollm2", models / SMOLLM
    yield "gemma", models / GEMMA
    with Gguf.open(models / SMOLLM) as gguf:
        for pre in PRE_NAMES:
            yield f"pre {pre}", copy_vocabulary(gguf, folder / f"{pre}.gguf", pre)
    with Gguf.open(models / GEMMA) as gguf:
        yield "space prefix", copy_vocabulary(gguf, folder / "space.gguf", tokens=20_000, space_prefix=True)


def main(models: Path) -> None:
    # Not a dependency of the tests: only whoever renews the fixture needs it.
    llama_cpp: Any = importlib.import_module("llama_cpp")
    expected: dict[str, Any] = {
        "texts": [text.hex() for text in texts()],
        "llama_cpp": llama_cpp.__version__,
        "ids": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        for name, path in vocabularies(models, Path(folder)):
            llama = llama_cpp.Llama(str(path), vocab_only=True, verbose=False)
            expected["ids"][name] = [
                [llama.tokenize(text, add_bos=False, special=special) if text else [] for special in (False, True)]
                for text in texts()
            ]
    FIXTURE.parent.mkdir(exist_ok=True)
    FIXTURE.write_bytes(lzma.compress(json.dumps(expected, separators=(",", ":")).encode()))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
