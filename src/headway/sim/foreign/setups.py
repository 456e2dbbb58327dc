"""What is declared of each saved run: the engine's settings, the model, the bounds, the controls.

The runs are of vLLM 0.19, published with LLMServingSim (casys-kaist/LLMServingSim, MIT), with the
measured kernels. Everything here was known before the run, or is said not to be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from headway.profiles.collective import AllReduce
from headway.profiles.tables import ModelFacts
from headway.sim.foreign.figures import FIGURES


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """How a run was made, and how truly its replay has to match.

    Attributes:
        name: what it is called on the command line.
        title: device and model.
        stem: ``vllm_STEM.requests.jsonl`` and ``vllm_STEM.meta.json`` are its files.
        workload: stem of the lengths and arrivals.
        sharing: the file that says which prompts begin alike.
        profile: folder of the measured kernels.
        model: what these don't say.
        num_blocks: of the KV pool; None is what the run recorded.
        block_factor: that number is multiplied by this.
        has_prefix_cache: whether blocks are found again.
        all_reduce: between devices; None is one device, or none modelled.
        with_skew: whether the profile's correction for contexts of unequal length is applied.
        adds_attention: whether a mixed call is taken for the sum of its parts.
        bounds: the largest error allowed, in percent, by figure; a figure without is shown only.
        published: the errors of the simulator that published the runs, in percent.
        declared: what was taken from where.
        controls: replays that are wrong on purpose, and must miss a bound.
    """

    name: str
    title: str
    stem: str
    workload: str
    sharing: str
    profile: str
    model: ModelFacts
    num_blocks: int | None = None
    block_factor: float = 1.0
    has_prefix_cache: bool = True
    all_reduce: AllReduce | None = None
    with_skew: bool = True
    adds_attention: bool = False
    bounds: Mapping[str, float] = field(default_factory=dict)
    published: Mapping[str, float] = field(default_factory=dict)
    declared: tuple[str, ...] = ()
    controls: tuple[Control, ...] = ()


@dataclass(frozen=True, slots=True)
class Control:
    """One thing done wrong."""

    what: str
    changes: Mapping[str, object]

    def applied_to(self, setup: Setup) -> Setup:
        """Return the setup with that thing wrong."""
        return replace(setup, **self.changes)  # type: ignore[arg-type]  # names are tested


def _published(*percents: float) -> Mapping[str, float]:
    return {figure.key: percent for figure, percent in zip(FIGURES, percents, strict=True)}


def _bounds(percent: float, **others: float | None) -> Mapping[str, float]:
    bounds = {figure.key: others.get(figure.key, percent) for figure in FIGURES}
    return {key: bound for key, bound in bounds.items() if bound is not None}


_LLAMA_8B = ModelFacts(num_layers=32, hidden_size=4096)
_QWEN_32B = ModelFacts(num_layers=64, hidden_size=5120)

_NOTHING_FITTED = "step times: measured kernels of this device; nothing is fitted on the run"
_POOL = "KV blocks: 0.9 of the device's memory less the weights; the pool was never full"

SETUPS = (
    Setup(
        name="rtx4090-8b",
        title="RTX 4090, Llama-3.1-8B",
        stem="RTX4090_Llama-3.1-8B",
        workload="sharegpt-llama-3.1-8b-300-sps10",
        sharing="prefix_sharing_llama-3.1-8b.csv",
        profile="RTX4090_meta-llama_Llama-3.1-8B_bf16_tp1",
        model=_LLAMA_8B,
        with_skew=False,
        bounds=_bounds(5),
        published=_published(
            *(0.5, 0.7, 0.6, 0.2), *(0.2, 0.2, 0.2, 0.9), *(0.4, 0.9, 0.2, 0.4), -0.0
        ),
        declared=(
            _NOTHING_FITTED,
            "KV blocks: as recorded by the engine at its start (2,588, one of them never used)",
            "correction for unequal contexts: off, as this profile's own settings say (applied, "
            "the largest error is 3.4 %)",
        ),
        controls=(
            Control("10 % more KV blocks", {"block_factor": 1.1}),
            Control("no prefix cache", {"has_prefix_cache": False}),
        ),
    ),
    Setup(
        name="pro6000-32b",
        title="2 x RTX PRO 6000, Qwen3-32B",
        stem="RTXPRO6000_Qwen3-32B",
        workload="sharegpt-qwen3-32b-300-sps10",
        sharing="prefix_sharing_qwen3-32b.csv",
        profile="RTXPRO6000_Qwen_Qwen3-32B_bf16_tp2",
        model=_QWEN_32B,
        num_blocks=28_614,
        all_reduce=AllReduce(bytes_per_s=16e9, latency_s=20e-6),
        bounds=_bounds(5),
        published=_published(
            *(0.9, 1.1, 0.9, 0.9), *(0.8, 0.8, 0.9, 1.3), *(0.9, 0.8, 0.7, 1.2), -1.5
        ),
        declared=(
            _NOTHING_FITTED,
            "all-reduce: 16 GB/s and 20 us, from the publisher's configuration of the machine",
            "correction for unequal contexts: on, as this profile's own settings say (left out, "
            "the largest error is 5.3 %)",
            _POOL,
        ),
        controls=(Control("no all-reduce", {"all_reduce": None}),),
    ),
    Setup(
        name="pro6000-8b",
        title="RTX PRO 6000, Llama-3.1-8B",
        stem="RTXPRO6000_Llama-3.1-8B",
        workload="sharegpt-llama-3.1-8b-300-sps10",
        sharing="prefix_sharing_llama-3.1-8b.csv",
        profile="RTXPRO6000_meta-llama_Llama-3.1-8B_bf16_tp1",
        model=_LLAMA_8B,
        num_blocks=36_578,
        bounds=_bounds(5, ttft_mean=8, ttft_p90=8, ttft_p50=None),
        published=_published(
            *(-4.3, -8.7, -4.5, -2.4), *(-1.0, -0.0, 0.5, 0.6), *(-1.9, -1.3, -1.8, -1.6), 2.0
        ),
        declared=(
            _NOTHING_FITTED,
            "correction for unequal contexts: on, as this profile's own settings say (left out, "
            "the largest error is 16.1 %)",
            "host time: none, though steps with prefill seem to have some that their decodes are "
            "too short to hide; so TTFT comes out too short",
            "TTFT p50 has no bound: it stands on the cliff between who waited and who didn't",
            _POOL,
        ),
        controls=(
            Control("attention of mixed steps as the sum of its parts", {"adds_attention": True}),
        ),
    ),
)
