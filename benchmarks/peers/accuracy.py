"""How far each engine is from float32 on a text: the repository's own licence and documents."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

import numpy as np

from benchmarks.peers.engines import HEADWAY, LLAMA_CPP, OPENVINO, VLLM, EngineSpec
from benchmarks.peers.files import llama_cpp_folder, model_file
from benchmarks.peers.headway_scores import write_scores
from benchmarks.peers.install import PeerError, command
from benchmarks.peers.places import ROOT, model_folder
from benchmarks.peers.protocol import Prompts
from benchmarks.peers.results import EngineResult, ShapeResult
from benchmarks.peers.scores import MOST_LIKELY, Distance, distance
from benchmarks.peers.shapes import Shape
from benchmarks.peers.weights import catalogued_file
from benchmarks.peers.worker import Worker
from headway.models.loading import open_checkpoint
from headway.text.loading import load_tokenizer

Progress = Callable[[str], None]

WINDOW: Final = 512
NUM_WINDOWS: Final = 8
_TEXTS: Final = ("LICENSE", "README.md", "ARCHITECTURE.md", "docs/operations.md")

_NOTES: Final = {
    VLLM: f"its KL is a lower bound: it tells its {MOST_LIKELY} likeliest tokens",
    OPENVINO: "KL by OpenVINO itself with the same settings",
    LLAMA_CPP: "KL by llama-perplexity, from its own F32",
}


def measure(
    shape: Shape, result: ShapeResult, workers: dict[EngineSpec, Worker], progress: Progress
) -> None:
    """Note mean KL and top-1 agreement of each engine; one that can't be scored says why."""
    windows = _windows(shape)
    place = model_folder(shape.name)
    place.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=place) as folder:  # a gigabyte
        exact, seen = Path(folder) / "exact.npy", Path(folder) / "seen.npy"
        checkpoint = open_checkpoint(catalogued_file(shape))
        write_scores(checkpoint, windows, str(exact), quantization="float32", kv_dtype="float32")
        llama_cpp = _LlamaCpp(shape, Path(folder), progress)

        def found(spec: EngineSpec, worker: Worker) -> Distance:
            if spec.peer == LLAMA_CPP:
                return llama_cpp.distance(spec)
            return _distance(worker, windows, exact, seen)

        for spec, worker in workers.items():
            if spec.is_scored:
                progress(f"accuracy of {spec.name}")
                _note(result.engines[spec.name], spec, partial(found, spec, worker))


def _note(noted: EngineResult, spec: EngineSpec, measured: Callable[[], Distance]) -> None:
    try:
        found = measured()
    except PeerError as error:
        noted.accuracy_note = f"not scored: {error}"
        return
    noted.mean_kl, noted.top_1 = found.mean_kl, found.top_1
    noted.accuracy_note = "" if spec.peer == HEADWAY else _NOTES[spec.peer]


def _windows(shape: Shape) -> Prompts:
    checkpoint = open_checkpoint(catalogued_file(shape))
    assets = checkpoint.tokenizer
    tokenizer = load_tokenizer(
        assets.tokenizer_json,
        assets.tokenizer_config,
        assets.gguf_metadata,
        model_vocab_size=checkpoint.config.vocab_size,
    )
    ids = list(tokenizer.encode(_text(), add_special_tokens=False))
    assert len(ids) > WINDOW * NUM_WINDOWS, "the texts are long enough"
    return [ids[i * WINDOW : (i + 1) * WINDOW] for i in range(NUM_WINDOWS)]


def _text() -> str:
    return "\n".join((ROOT / name).read_text(encoding="utf-8") for name in _TEXTS)


def _distance(worker: Worker, windows: Prompts, exact: Path, seen: Path) -> Distance:
    worker.score(windows, seen)
    return distance(np.load(exact, mmap_mode="r"), np.load(seen, mmap_mode="r"))


class _LlamaCpp:
    """Runs ``llama-perplexity``, first in float32, then with the weights of each row."""

    def __init__(self, shape: Shape, folder: Path, progress: Progress) -> None:
        self._shape = shape
        self._base = folder / "base.kld"
        self._text = folder / "text.txt"
        self._progress = progress
        self._has_base = False

    def distance(self, spec: EngineSpec) -> Distance:
        if not self._has_base:
            self._text.write_text(_text(), encoding="utf-8")
            exact = ("-ctk", "f32", "-ctv", "f32", "-fa", "off")
            self._run(model_file(self._shape, "full", self._progress), *exact)
            self._has_base = True
        path = model_file(self._shape, spec.file, self._progress)
        flags = spec.options(self._shape, path)["flags"]
        return parse_distance(self._run(path, "--kl-divergence", *flags))

    def _run(self, model: Path, *flags: str) -> str:
        tool = llama_cpp_folder(self._progress) / "llama-perplexity"
        common = ["-m", str(model), "-f", str(self._text), "-c", str(WINDOW)]
        common += ["--chunks", str(NUM_WINDOWS), "--kl-divergence-base", str(self._base)]
        return command([str(tool), *common, *flags])


def parse_distance(text: str) -> Distance:
    """Read what ``llama-perplexity`` printed.

    Raises:
        PeerError: the figures are not there.
    """
    mean_kl = re.search(r"Mean +KLD: +([\d.e+-]+)", text)
    top_1 = re.search(r"Same top p: +([\d.]+)", text)
    if mean_kl is None or top_1 is None:
        raise PeerError("llama-perplexity printed no divergence")
    positions = NUM_WINDOWS * (WINDOW // 2 - 1)
    return Distance(float(mean_kl[1]), float(top_1[1]) / 100, positions)
