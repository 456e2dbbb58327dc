"""Whatever the scheduler would refuse, the settings do before it, if the pool's size is stated."""

from __future__ import annotations

import contextlib

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.config import (
    ClassSettings,
    KvSettings,
    ModelSettings,
    SchedulerSettings,
    Settings,
)
from headway.config.scheduling import scheduler_config
from headway.errors import ConfigError

SHARES = st.sampled_from([0.0, 0.1, 0.3, 0.5, 0.55, 1.0])
FEW = st.integers(0, 3)


@st.composite
def classes(draw: st.DrawFn) -> ClassSettings | None:
    with contextlib.suppress(ConfigError):
        reserves = draw(st.booleans())
        return ClassSettings(
            min_running_share=0.0 if reserves else draw(SHARES),
            max_running_share=1.0 if reserves else max(draw(SHARES), 0.1),
            reserved_slots=draw(FEW) if reserves else 0,
            reserved_blocks=draw(FEW) if reserves else 0,
        )
    return None


@st.composite
def schedulers(draw: st.DrawFn) -> SchedulerSettings | None:
    maybe = st.none() | st.integers(1, 8)
    with contextlib.suppress(ConfigError):
        return SchedulerSettings(
            batching=draw(st.sampled_from(["continuous", "dynamic", "static"])),
            max_num_seqs=draw(st.integers(1, 8)),
            max_num_batched_tokens=draw(st.integers(1, 64)),
            enable_chunked_prefill=draw(st.booleans()),
            max_prefill_chunk_tokens=draw(maybe),
            long_prefill_threshold_tokens=draw(maybe),
            max_long_partial_prefills=draw(maybe),
        )
    return None


@settings(max_examples=500, deadline=None)
@given(
    scheduler=schedulers(),
    tables=st.lists(classes(), max_size=3),
    num_blocks=st.integers(1, 8),
    max_model_len=st.integers(2, 99),
    watermark=st.sampled_from([0.0, 0.01, 0.99]),
)
def test_the_scheduler_takes_what_the_settings_take(
    scheduler: SchedulerSettings | None,
    tables: list[ClassSettings | None],
    num_blocks: int,
    max_model_len: int,
    watermark: float,
) -> None:
    if scheduler is None or None in tables:
        return
    named = {f"c{i}": each for i, each in enumerate(tables) if each is not None}
    try:
        whole = Settings(
            model=ModelSettings(max_model_len=max_model_len),
            kv=KvSettings(num_blocks=num_blocks, block_size=8, watermark=watermark),
            scheduler=scheduler,
            classes=named,
        )
    except ConfigError:
        return
    scheduler_config(whole, max_model_len=max_model_len, num_blocks=num_blocks, num_swap_blocks=0)
