"""What went on at each time: requests under way, tokens that came, requests due and completed."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence

from headway.report.record import Outcome, Record


def under_way(records: Iterable[Record]) -> list[tuple[float, int]]:
    """Return (second, requests due and not ended) for each change, in order of time.

    At one moment those that end count before those that come.
    """
    changes: list[tuple[float, int]] = []
    for each in records:
        changes.append((each.due_s, 1))
        if each.ended_s is not None:
            changes.append((each.ended_s, -1))
    changes.sort()
    levels, level = [], 0
    for at_s, change in changes:
        level += change
        levels.append((at_s, level))
    return levels


def peak_concurrency(records: Iterable[Record]) -> int:
    """Return the most requests that were under way at once."""
    return max((level for _, level in under_way(records)), default=0)


def output_tokens_by_bin(records: Iterable[Record], width_s: float, num_bins: int) -> array[float]:
    """Return the tokens that came in each bin; each piece stands for an even part of its answer."""
    bins = array("d", bytes(8 * num_bins))
    for each in records:
        if not each.token_times:
            continue
        part = max(each.output_tokens, len(each.token_times)) / len(each.token_times)
        for at_s in each.token_times:
            index = int(at_s / width_s)
            if 0 <= index < num_bins:
                bins[index] += part
    return bins


def peak_output_tokens(records: Sequence[Record]) -> float:
    """Return the most tokens that came within a second (from 0 to 1, 1 to 2, …)."""
    last_s = max((each.token_times[-1] for each in records if each.token_times), default=0.0)
    return max(output_tokens_by_bin(records, 1.0, int(last_s) + 1), default=0.0)


def counts_by_bin(moments: Iterable[float], width_s: float, num_bins: int) -> list[int]:
    """Return how many of the moments lie in each bin."""
    bins = [0] * num_bins
    for at_s in moments:
        index = int(at_s / width_s)
        if 0 <= index < num_bins:
            bins[index] += 1
    return bins


def completed_at(records: Iterable[Record]) -> list[float]:
    """Return when requests were completed."""
    return [
        each.ended_s
        for each in records
        if each.outcome is Outcome.COMPLETED and each.ended_s is not None
    ]
