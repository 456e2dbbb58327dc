"""A short run of a real engine that is made to show what its steps cost, and the fit to it.

Rounds of requests that come together: few to many, short to long, so that steps of every batch
size, context and chunk occur, alone and mixed. Pass by pass the grid becomes finer, so that a run
that is cut short has seen the whole range; when it can't become finer, other lengths are tried, to
the end of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from random import Random

from headway.core.limits import SchedulerLimits
from headway.profiles.features import ObservedStep
from headway.profiles.fitted import fit_device, fit_host
from headway.profiles.interference import TimedStep, interference_of
from headway.profiles.profile import Profile
from headway.sim.live import LiveEngine, Steps
from headway.workload import Arrival

_WARM_UP_TOKENS = 8
_DECODES = 1024
"""Tokens that the sequences of a round get: steps of few are short, so there are more of them."""
_FEWEST_OUTPUTS, _MOST_OUTPUTS = 32, 192
"""Of these for each."""
_FINENESS = (4, 2, 1)
"""Of the first passes: each so many-th batch size."""


@dataclass(frozen=True, slots=True)
class Round:
    """Requests that come together, and others that come while these decode.

    Attributes:
        num_requests: that come at once.
        prompt_tokens: of each at most, and at least half as many: as in life, no two are alike.
        output_tokens: likewise, so that the batch thins out.
        late_prompts: prompts of requests that come one after the other meanwhile, for mixed steps.
    """

    num_requests: int
    prompt_tokens: int
    output_tokens: int
    late_prompts: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Calibration:
    """What came of a calibration.

    Attributes:
        profile: of device and host.
        num_steps: in the step log.
        seconds: that it took.
        is_complete: whether the finest grid was run once.
    """

    profile: Profile
    num_steps: int
    seconds: float
    is_complete: bool


def calibrate(
    engine: LiveEngine,
    limits: SchedulerLimits,
    *,
    name: str,
    most_s: float,
    longest: int,
    tell: Callable[[str], None] = lambda _: None,
) -> Calibration:
    """Measure and fit.

    Args:
        engine: fresh, with a real executor.
        limits: of its scheduler.
        name: of the profile.
        most_s: about how long it may take.
        longest: tokens of the longest sequence to try.
        tell: hears of the progress.

    Raises:
        ProfileError: too few steps were run in that time.
    """
    now = engine.clock.now
    began_s = now()
    rounds = Rounds(engine, limits, longest, tell)
    steps = rounds.steps()
    while now() - began_s < most_s:
        next(steps)
    steps.close()
    seconds = now() - began_s
    log = engine.step_log.steps
    source = f"calibrated on {len(log)} steps in {seconds:.0f} s"
    is_complete = rounds.num_passes >= len(_FINENESS)
    return Calibration(profile_of(log, name, source), len(log), seconds, is_complete)


class Rounds:
    """What is run to calibrate, without end, by an engine whose step log it fills from the start.

    Attributes:
        num_passes: that were run from their beginning to their end.
    """

    def __init__(
        self,
        engine: LiveEngine,
        limits: SchedulerLimits,
        longest: int,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._engine = engine
        self._passes = passes(limits, longest)
        self._tell = tell
        self.num_passes = 0

    def steps(self) -> Steps:
        """Yield the seconds of each step."""
        warm_up = Arrival(at_s=0.0, prompt_tokens=_WARM_UP_TOKENS, output_tokens=_WARM_UP_TOKENS)
        self._engine.run([warm_up])
        self._engine.step_log.steps.clear()
        for each_pass in self._passes:
            for each in each_pass:
                self._tell(f"{each.num_requests} requests, prompts of {each.prompt_tokens} tokens")
                yield from self._engine.begin(_arrivals(each))[1]
            self.num_passes += 1


def profile_of(
    steps: Sequence[ObservedStep], name: str, source: str, *, shapes_mix: bool = False
) -> Profile:
    """Fit a profile to a step log; without a time of the host if none was seen.

    ``shapes_mix`` is of :func:`headway.profiles.fitted.fit_device`: not of rounds, in which steps
    are alike for a second.

    Raises:
        ProfileError: there are too few steps.
    """
    host = fit_host(steps) if any(each.host_s > 0 for each in steps) else None
    device = fit_device(steps, shapes_mix=shapes_mix)
    return Profile(
        name=name,
        source=source,
        device=device,
        host=host,
        interference=interference_of(
            TimedStep(each.shape.has_few_rows, device.seconds(each.shape), each.seconds)
            for each in steps
        ),
    )


def passes(limits: SchedulerLimits, longest: int) -> Iterator[list[Round]]:
    """Yield what to run, without end: ever finer, and then other lengths with each batch size."""
    most = limits.max_num_seqs
    room = limits.num_blocks * limits.block_size
    batches = _spread(1, most)
    lengths = _spread(16, max(longest // 2, 16))
    for number in count():
        fineness = _FINENESS[number] if number < len(_FINENESS) else 1
        found = []
        for place, batch in enumerate(batches[::fineness]):
            prompt = lengths[(place * 5 + 2 * number + 4) % len(lengths)]
            share = min(room // batch, longest)
            prompt = max(min(prompt, share - 40), 8)
            output = min(max(_DECODES // batch, _FEWEST_OUTPUTS), _MOST_OUTPUTS)
            output = max(min(share - prompt, output), 2)
            late = tuple(lengths[(place + number + n) % len(lengths)] for n in range(2))
            found.append(Round(batch, prompt, output, late if batch < most else ()))
        yield found


def _spread(low: int, high: int) -> list[int]:
    """Return numbers from low to high, about a factor of the root of two apart."""
    found, number = [], float(low)
    while number < high:
        found.append(round(number))
        number = max(number * 1.414, number + 1)
    return [*found, high]


def _arrivals(each: Round) -> list[Arrival]:
    random = Random(each.num_requests)
    together = [
        Arrival(
            at_s=0.0,
            prompt_tokens=_half_to_all(each.prompt_tokens, random),
            output_tokens=_half_to_all(each.output_tokens, random),
        )
        for _ in range(each.num_requests)
    ]
    later = [
        Arrival(at_s=0.05 * number, prompt_tokens=prompt, output_tokens=8)
        for number, prompt in enumerate(each.late_prompts, 1)
    ]
    return together + later


def _half_to_all(most: int, random: Random) -> int:
    return random.randint(max(most // 2, 1), most)
