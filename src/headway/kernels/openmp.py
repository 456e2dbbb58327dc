"""How the threads of torch wait for each other.

A step is over a thousand short parallel regions. GNU OpenMP's threads spin between them by
default, which is fastest on an idle machine, and a disaster when anything else wants a core: the
spinning threads keep it from the one that they wait for. Spinning briefly and then sleeping keeps
nearly all of the speed and bounds the harm. Measured with SmolLM2-135M in float32 on 2 cores, one
stream, as the time of a decode step:

==================  ============  =======================
spin count          idle machine  beside one busy process
==================  ============  =======================
default             23 ms         up to 1,900 ms
20,000              23 ms         198 ms
2,000               24 ms         68 ms
500                 31 ms         42 ms
100, or passive     40 to 48 ms   36 ms
==================  ============  =======================
"""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from typing import Final

_SETTINGS: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
_SPIN_COUNT: Final = 1_000


def spin_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Ask OpenMP threads to go to sleep soon when they wait, unless the user has said anything.

    Has an effect only before torch is first imported, since OpenMP reads its settings once.
    """
    if not any(name in environment for name in _SETTINGS):
        environment["GOMP_SPINCOUNT"] = str(_SPIN_COUNT)
