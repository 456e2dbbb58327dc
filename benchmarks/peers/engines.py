"""What a row of the table is, and how its process is started."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from benchmarks.peers.files import Progress, llama_cpp_folder, model_file
from benchmarks.peers.install import install
from benchmarks.peers.places import RESULTS, python_of
from benchmarks.peers.shapes import Shape
from benchmarks.peers.worker import Worker

Options = Callable[[Shape, Path], dict[str, Any]]

HEADWAY: Final = "headway"
LLAMA_CPP: Final = "llama.cpp"
OPENVINO: Final = "openvino"
VLLM: Final = "vllm"

PEERS: Final = (LLAMA_CPP, OPENVINO, VLLM)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class EngineSpec:
    """A row of the table.

    Attributes:
        name: unique, and the head of its column.
        peer: what ``--peers`` names, and the virtual environment that it needs.
        module: its worker.
        file: which of :mod:`benchmarks.peers.files` it reads.
        setting: what it is set to, in words.
        options: what its worker gets, of the shape and the path of the file.
        environment: variables of its process.
        is_warmed: whether it does something small before each measurement, after its pause.
        is_scored: whether its accuracy is measured, where there is one.
        only: the names of the shapes that it is for; empty: all.
    """

    name: str
    peer: str
    module: str
    file: str
    setting: str
    options: Options
    environment: Mapping[str, str] = field(default_factory=dict)
    is_warmed: bool = True
    is_scored: bool = True
    only: tuple[str, ...] = ()

    def start(self, shape: Shape, progress: Progress) -> Worker:
        """Install it, make its file, and start it.

        Raises:
            PeerError: one of these failed.
        """
        if self.peer != HEADWAY:
            install(self.peer, progress)
        options = self.options(shape, model_file(shape, self.file, progress))
        if self.peer == LLAMA_CPP:
            options["programs"] = str(llama_cpp_folder(progress))
        progress(f"starting {self.name}")
        module = f"benchmarks.peers.workers.{self.module}"
        log = RESULTS / f"{shape.name}-{self.name.replace(' ', '-')}.log"
        # a worker may import from this repository, and from its own environment alone
        own = {} if self.peer == HEADWAY else {"PYTHONPATH": ""}
        return Worker(
            [self._python(), "-m", module, json.dumps(options)],
            log,
            environment={**own, **self.environment},
        )

    def _python(self) -> str:
        return sys.executable if self.peer == HEADWAY else str(python_of(self.peer))
