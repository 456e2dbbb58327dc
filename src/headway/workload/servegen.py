"""ServeGen (Xiang et al., 2025): a production service as many clients, each with its own habits.

A folder has for each client ``chunk-N-trace.csv``, whose rows are windows (start in seconds, rate,
coefficient of variation, ``Gamma`` or ``Weibull``, shape, scale), and ``chunk-N-dataset.json``,
which gives the distributions of input and output tokens by the time from which they hold. Each
client is a renewal process of its own in every window; lengths are drawn independently.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from bisect import bisect, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from random import Random

from headway.workload.arrival import Arrival
from headway.workload.errors import WorkloadError
from headway.workload.processes import Gaps, at_rates, exponential, gamma, weibull
from headway.workload.transform import in_order

_WINDOW_S = 600.0
_NAME = re.compile(r"chunk-(\d+)-trace\.csv")


@dataclass(frozen=True, slots=True)
class Window:
    """From when a client sends how much, and how unevenly."""

    start_s: float
    end_s: float
    rate: float
    kind: str
    shape: float

    def gaps(self, random: Random) -> Gaps:
        """Return gaps of mean 1 of its process."""
        if self.kind == "Gamma":
            return gamma(random, self.shape**-0.5)
        if self.kind == "Weibull":
            return weibull(random, self.shape)
        return exponential(random)


class Pool:
    """Lengths with the probabilities that a file gives them."""

    def __init__(self, weights: Mapping[int, float]) -> None:
        self._values = list(weights)
        self._sums = list(accumulate(weights.values()))

    def draw(self, random: Random) -> int:
        """Return one length, at least 1."""
        place = bisect_right(self._sums, random.random() * self._sums[-1])
        return max(self._values[min(place, len(self._values) - 1)], 1)


@dataclass(frozen=True, slots=True)
class Client:
    """One client: when it sends, and how long prompts and answers are, by time."""

    number: int
    windows: tuple[Window, ...]
    pools: Mapping[float, tuple[Pool, Pool]]

    @property
    def num_expected(self) -> float:
        """Requests of all windows, on average."""
        return sum(each.rate * (each.end_s - each.start_s) for each in self.windows)

    def lengths(self, at_s: float, random: Random) -> tuple[int, int]:
        """Draw prompt and output tokens of a request at this time."""
        starts = sorted(self.pools)
        prompts, outputs = self.pools[starts[max(bisect(starts, at_s) - 1, 0)]]
        return prompts.draw(random), outputs.draw(random)


def read_servegen(
    folder: Path,
    random: Random,
    *,
    from_s: float = 0.0,
    duration_s: float = 3600.0,
    num_clients: int | None = None,
    class_name: str = "default",
) -> list[Arrival]:
    """Draw a stretch of a ServeGen service; each client is a tenant (``client-N``).

    Args:
        folder: with the files of the clients.
        random: draws times and lengths.
        from_s: where in the recorded day the stretch begins; times count from there.
        duration_s: how long it is.
        num_clients: only those with the most requests in the stretch; None takes all.
        class_name: of all requests.

    Raises:
        WorkloadError: a file is missing or is no such file, or nobody sends anything then.
    """
    clients = [_within(each, from_s, from_s + duration_s) for each in read_clients(folder)]
    busiest = sorted(clients, key=lambda each: -each.num_expected)[:num_clients]
    arrivals = [each for client in busiest for each in _drawn(client, from_s, random, class_name)]
    if not arrivals:
        raise WorkloadError(f"nobody in {folder} sends anything from {from_s:g} s on")
    return in_order(arrivals)


def read_clients(folder: Path) -> list[Client]:
    """Read all clients of a folder, in the order of their numbers."""
    try:
        found = sorted(
            (int(match[1]), path)
            for path in folder.iterdir()
            if (match := _NAME.fullmatch(path.name))
        )
    except OSError as error:
        raise WorkloadError(f"{folder} can't be read: {error.strerror}") from error
    if not found:
        raise WorkloadError(f"{folder} has no chunk-N-trace.csv, as ServeGen's folders have")
    return [_client(number, path) for number, path in found]


def _client(number: int, path: Path) -> Client:
    dataset = path.with_name(path.name.replace("-trace.csv", "-dataset.json"))
    file = path
    try:
        windows = tuple(_windows(path))
        file = dataset
        pools = dict(_pools(dataset))
    except OSError as error:
        raise WorkloadError(f"{file} can't be read: {error.strerror}") from error
    except (LookupError, ValueError, TypeError, SyntaxError) as error:
        raise WorkloadError(f"{file} is not as ServeGen writes it: {error}") from error
    if windows and not pools:
        raise WorkloadError(f"{dataset} has no lengths")
    return Client(number, windows, pools)


def _windows(path: Path) -> Iterator[Window]:
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row for row in csv.reader(file) if row]
    starts = [float(row[0]) for row in rows]
    ends = [*(after for _, after in pairwise(starts)), starts[-1] + _WINDOW_S] if starts else []
    for start_s, end_s, row in zip(starts, ends, rows, strict=True):
        rate, kind, shape = float(row[1]), row[3], float(row[4] or 0)
        if rate > 0:
            yield Window(start_s, end_s, rate, kind if shape > 0 else "", shape)


def _pools(path: Path) -> Iterator[tuple[float, tuple[Pool, Pool]]]:
    """Leave out times for which the file has no lengths: those before go on."""
    for start, each in json.loads(path.read_text(encoding="utf-8")).items():
        prompts, outputs = _weights(each["input_tokens"]), _weights(each["output_tokens"])
        if prompts and outputs:
            yield float(start), (Pool(prompts), Pool(outputs))


def _weights(literal: str | None) -> dict[int, float]:
    read = ast.literal_eval(literal) if literal else {}
    return {round(length): weight for length, weight in read.items() if weight > 0}


def _within(client: Client, from_s: float, to_s: float) -> Client:
    cut = (
        Window(max(w.start_s, from_s), min(w.end_s, to_s), w.rate, w.kind, w.shape)
        for w in client.windows
        if w.start_s < to_s and w.end_s > from_s
    )
    return Client(client.number, tuple(cut), client.pools)


def _drawn(client: Client, from_s: float, random: Random, class_name: str) -> Iterator[Arrival]:
    for window in client.windows:
        steps = ((window.end_s - window.start_s, window.rate),)
        for elapsed_s in at_rates(window.gaps(random), steps):
            at_s = window.start_s + elapsed_s
            prompt, output = client.lengths(at_s, random)
            yield Arrival(
                at_s=at_s - from_s,
                prompt_tokens=prompt,
                output_tokens=output,
                class_name=class_name,
                tenant=f"client-{client.number}",
            )
