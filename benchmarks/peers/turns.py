"""One shape: starts every engine, lets them take turns, and notes what each took."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager

from benchmarks.peers.cases import Case
from benchmarks.peers.engines import HEADWAY, EngineSpec
from benchmarks.peers.install import PeerError
from benchmarks.peers.protocol import Prompts, Timing
from benchmarks.peers.results import EngineResult, Measurement, ShapeResult
from benchmarks.peers.shapes import Shape
from benchmarks.peers.worker import Worker

Progress = Callable[[str], None]

_WARM_UP_TOKENS = 8


class Turns:
    """Runs rounds over a set of started workers. An engine that fails drops out, with its reason.

    Only one engine runs at any time; the others are stopped.
    """

    def __init__(
        self,
        result: ShapeResult,
        shape: Shape,
        workers: dict[EngineSpec, Worker],
        fork_join_ns: Callable[[], float],
        progress: Progress,
    ) -> None:
        self._result = result
        self._vocab_size: int = shape.config["vocab_size"]
        self._workers = workers
        self._fork_join_ns = fork_join_ns
        self._progress = progress

    def prime(self, cases: Sequence[Case]) -> None:
        """Let each engine meet each size once: some compile code for it."""
        for case in cases:
            for spec, worker in list(self._workers.items()):
                if case.primed and spec.is_warmed:
                    with self._dropping(spec):
                        worker.generate(self._prompts(case, "prime"), min(4, case.output))

    def round(self, number: int, cases: Sequence[Case]) -> None:
        """Measure every case on every engine once; who begins changes from round to round."""
        for case in cases:
            order = list(self._workers.items())
            first = number % len(order) if order else 0
            for spec, worker in order[first:] + order[:first]:
                with self._dropping(spec):
                    self._measure(number, case, spec, worker)

    def _measure(self, number: int, case: Case, spec: EngineSpec, worker: Worker) -> None:
        if spec.is_warmed:
            worker.generate(self._warm_up(number), _WARM_UP_TOKENS)
        before = self._fork_join_ns()
        timing = worker.generate(self._prompts(case, f"round {number}"), case.output)
        latency = min(before, self._fork_join_ns())
        _check(case, timing)
        self._progress(f"round {number}, {case.name}, {spec.name}: {timing.seconds:.2f} s")
        self._result.measurements.append(
            Measurement(
                case=case.name,
                engine=spec.name,
                round=number,
                timing=timing,
                fork_join_ns=latency,
            )
        )

    def _prompts(self, case: Case, seed: str) -> Prompts:
        return case.prompts(self._vocab_size, seed)

    def _warm_up(self, number: int) -> Prompts:
        case = Case(name="warm-up", streams=2, prompt=16, output=_WARM_UP_TOKENS, figures=())
        return self._prompts(case, str(number))

    @contextmanager
    def _dropping(self, spec: EngineSpec) -> Iterator[None]:
        try:
            yield
        except PeerError as error:
            self._progress(f"{spec.name} drops out: {error}")
            self._result.engines[spec.name].error = str(error)
            self._workers.pop(spec).close()


@contextmanager
def started(
    shape: Shape, specs: Sequence[EngineSpec], result: ShapeResult, progress: Progress
) -> Iterator[dict[EngineSpec, Worker]]:
    """Start every engine, one after the other, and note those that can't be; end all at last."""
    workers: dict[EngineSpec, Worker] = {}
    with ExitStack() as stack:
        for spec in specs:
            noted = EngineResult(
                name=spec.name, setting=spec.setting, is_headway=spec.peer == HEADWAY
            )
            result.engines[spec.name] = noted
            try:
                worker = spec.start(shape, progress)
            except PeerError as error:
                progress(f"{spec.name} can't take part: {error}")
                noted.error = str(error)
                continue
            stack.callback(worker.close)
            noted.version, noted.start_s = str(worker.about.get("version", "")), worker.start_s
            workers[spec] = worker
        yield workers


def _check(case: Case, timing: Timing) -> None:
    """Raise PeerError if the engine did something else than it was asked to."""
    expected = case.streams * case.output
    if timing.output_tokens != expected:
        raise PeerError(f"{case.name}: {timing.output_tokens} tokens came, not {expected}")
