"""Compares Headway with llama.cpp, OpenVINO GenAI and vLLM on this machine.

    python -m benchmarks.peers [--peers llama.cpp,openvino] [--models smollm2-135m] [--quick]

Each peer is installed into a folder of its own below ``.venv-peers``, from pinned versions, and
gets the same weights in the format it likes best. All engines are started, and take turns: one
runs, the others are stopped. A peer that can't be installed or fails is a row that says why.
Nothing else should run on the machine meanwhile.
"""

from __future__ import annotations

import sys

from headway.executors.cpu import has_native_kernels

if __name__ == "__main__":
    if not has_native_kernels():  # said before anything imports them
        sys.exit("Headway has no native kernels here: install a C++ compiler, then Headway again")
    from benchmarks.peers.run import main

    sys.exit(main(__doc__))
