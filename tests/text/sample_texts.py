"""Makes varied lines of text from a seed, for comparing tokenizers."""

from __future__ import annotations

import random
import unicodedata
from collections.abc import Callable

PROSE = (
    "The quick brown fox jumps over the lazy dog.",
    "It's not what you'd think; they've said we'll go, I'm sure she'd DON'T CAN'T I'LL.",
    "Übergrößen, façade, naïve coöperation — “quoted” … and ‘single’ – dashes",
    "Съешь же ещё этих мягких французских булок, да выпей чаю",
    "敏捷的棕色狐狸跳过了懒狗。今天天气很好，我们去公园吧！",
    "素早い茶色の狐がのろまな犬を飛び越える。カタカナ ﾊﾝｶｸ",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다",
    "نص عربي مع أرقام ١٢٣٤ وعلامات، هل هذا صحيح؟",
    "नमस्ते दुनिया, यह एक परीक्षण है ३४५",
    "ภาษาไทยไม่มีช่องว่าง",
    "Ελληνικά γράμματα και ΚΕΦΑΛΑΙΑ",
    "Việt Nam: tiếng Việt có nhiều dấu",
)
CODE = (
    "def f(x: int) -> list[int]:\n    return [i ** 2 for i in range(x) if i % 2 == 0]  # squares",
    'for (int i = 0; i < n; ++i) { a[i] += b[i] * 3.14e-5f; } // "done"\t\t\\n',
    "SELECT * FROM t WHERE a >= 10 AND b LIKE '%x_y%' ORDER BY c DESC;",
    '<div class="a-b"><p>x &amp; y</p></div>\r\n<!-- end -->',
    "std::vector<std::pair<int,int>> v{{1,2},{3,4}};",
    '{"key": [1, 2.5, null, true], "nested": {"a": "b\\u00e9"}}',
    "$ git commit -m 'fix: it' && make -j8 || echo $?",
)
EMOJI = ("😀", "👍🏽", "👩‍👩‍👧‍👦", "🏳️‍🌈", "❤️", "🇩🇪🇫🇷", "1️⃣", "☕", "🧑🏿‍🚀")
SPACES = (
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\n\n",
    "\r\n",
    " \n ",
    "    ",
    "\t\t ",
    "\u00a0",
    "\u3000",
    "\u2003",
)
SPECIAL_LOOK = (
    "<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_start|", "|im_end|>", "<repo_name>",
    "<file_sep>", "<s>", "</s>", "<unk>", "<jupyter_code>", "<|im_start|><|im_end|>", "< |im_end|>",
)  # fmt: skip


def sample_texts(seed: int, count: int, *, special: bool = True) -> list[str]:
    """``count`` lines that mix scripts, code, digits, emoji, white space and rare characters."""
    rng = random.Random(seed)
    makers = [_prose, _code, _digits, _emoji, _spaces, _unicode, _ascii]
    if special:
        makers.append(_special)
    return [_line(rng, makers) for _ in range(count)]


def _line(rng: random.Random, makers: list[Callable[[random.Random], str]]) -> str:
    return "".join(rng.choice(makers)(rng) for _ in range(rng.randint(1, 6)))


def _cut(rng: random.Random, text: str) -> str:
    start = rng.randrange(len(text))
    return text[start : start + rng.randint(1, 40)]


def _prose(rng: random.Random) -> str:
    return rng.choice(SPACES[:2]) + _cut(rng, rng.choice(PROSE))


def _code(rng: random.Random) -> str:
    return _cut(rng, rng.choice(CODE))


def _digits(rng: random.Random) -> str:
    number = str(rng.randrange(10 ** rng.randint(1, 14)))
    return (
        rng.choice(("", " ", "$", "-", "0x", "²³½Ⅷ")) + number + rng.choice(("", ".5", ",000", "%"))
    )


def _emoji(rng: random.Random) -> str:
    return "".join(rng.choice(EMOJI) for _ in range(rng.randint(1, 4)))


def _spaces(rng: random.Random) -> str:
    return "".join(rng.choice(SPACES) for _ in range(rng.randint(1, 5)))


def _ascii(rng: random.Random) -> str:
    return "".join(chr(rng.randrange(0x20, 0x7F)) for _ in range(rng.randint(1, 12)))


def _unicode(rng: random.Random) -> str:
    return "".join(_character(rng) for _ in range(rng.randint(1, 8)))


def _character(rng: random.Random) -> str:
    """Any assigned character; unassigned ones change class between versions of Unicode."""
    while True:
        character = chr(rng.randrange(1, rng.choice((0x300, 0x3000, 0x20000))))
        if unicodedata.category(character) not in ("Cn", "Cs", "Co"):
            return character


def _special(rng: random.Random) -> str:
    return rng.choice(SPECIAL_LOOK)
