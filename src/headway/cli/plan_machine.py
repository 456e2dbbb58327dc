"""What a plan is made for: settings with the classes of the workload, the machine, its memory."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headway.cli.machine import Simulated, simulated_from
from headway.config import ClassSettings, Loaded, Origin, Settings, table_settings
from headway.errors import UsageError

if TYPE_CHECKING:
    from headway.planning.batch import Batch
    from headway.planning.kv import KvMemory
    from headway.profiles.watched import Watched
    from headway.sim.replica import Machine
    from headway.workload import Targets, Workload

_PLANNED = "plan"
#: while blocks are counted, so that only memory bounds them
_MOST_SEQS = 1024


@dataclass(frozen=True, slots=True)
class Ground:
    """What a plan stands on.

    Attributes:
        loaded: settings with all classes of the workload, and where each is from.
        simulated: the machine that they make, with as many blocks as its memory holds.
        seen: an eye on the range of its step costs, if they have one.
        memory: where its KV comes from, if that is known.
    """

    loaded: Loaded
    simulated: Simulated
    seen: Watched | None
    memory: KvMemory | None

    @property
    def most_seqs(self) -> int:
        """Sequences at once that a plan may allow."""
        is_given = is_set(self.loaded, "scheduler.max_num_seqs")
        return self.loaded.settings.scheduler.max_num_seqs if is_given else _MOST_SEQS

    @property
    def budget(self) -> int | None:
        """Tokens in a step, if that is not for the plan to choose."""
        scheduler = self.loaded.settings.scheduler
        if is_set(self.loaded, "scheduler.max_num_batched_tokens"):
            return scheduler.max_num_batched_tokens
        if not scheduler.enable_chunked_prefill:
            return self.simulated.machine.config.limits.longest
        return None

    def loaded_for(self, batch: Batch) -> Loaded:
        """Return the settings with a batch, as they are simulated and served."""
        values: dict[str, object] = {
            "scheduler.max_num_seqs": batch.num_seqs,
            "scheduler.max_num_batched_tokens": batch.budget,
            **self._wait(batch),
        }
        if not is_set(self.loaded, "kv.num_blocks"):
            values["kv.num_blocks"] = self._num_blocks(batch)
        return planned(self.loaded, "", values)

    def machine_of(self, batch: Batch) -> Machine:
        """Return the machine with a batch."""
        from headway.config.scheduling import scheduler_config

        settings = self.loaded_for(batch).settings
        machine, num_blocks = self.simulated.machine, settings.kv.num_blocks
        assert num_blocks is not None, "a plan sets them where nobody has"
        known = machine.config.limits
        config = scheduler_config(
            settings,
            max_model_len=known.max_model_len,
            num_blocks=num_blocks,
            num_swap_blocks=known.num_swap_blocks,
        )
        limits = replace(config.limits, max_plans_in_flight=known.max_plans_in_flight)
        return replace(machine, config=replace(config, limits=limits))

    def _num_blocks(self, batch: Batch) -> int:
        """Never more than the batch can use with sequences of full length, as the server has it."""
        limits = self.simulated.machine.config.limits
        most = batch.num_seqs * -(-limits.max_model_len // limits.block_size)
        return min(limits.num_blocks, most)

    def _wait(self, batch: Batch) -> dict[str, object]:
        """Batches that nobody can join wait to fill, for half of what may be waited."""
        key = "scheduler.max_waiting_time_ms"
        is_open = self.loaded.settings.scheduler.batching == "continuous"
        if is_open or is_set(self.loaded, key) or not 0 < batch.wait_s < float("inf"):
            return {}
        return {key: round(batch.wait_s * 1e3 / 2, 1)}


def is_set(loaded: Loaded, key: str) -> bool:
    """Whether somebody has set it: then a plan keeps it."""
    return loaded.origins[key].kind not in ("default", "protect", _PLANNED)


def planned(loaded: Loaded, why: str, values: Mapping[str, object]) -> Loaded:
    """Return the settings with these values by key, whose origin is the plan, with the reason."""
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        section, _, name = key.partition(".")
        sections.setdefault(section, {})[name] = value
    changed = {
        section: replace(getattr(loaded.settings, section), **names)
        for section, names in sections.items()
    }
    origins = {**loaded.origins, **dict.fromkeys(values, Origin(_PLANNED, why))}
    settings: Any = loaded.settings
    return replace(loaded, settings=replace(settings, **changed), origins=origins)


# ------------------------------------------------------------- classes


def promised_by_settings(settings: Settings) -> dict[str, Targets]:
    """Return the targets of the classes of a settings file."""
    from headway.workload import Targets

    return {
        name: Targets(ttft_s=_seconds(each.ttft_p99_ms), tpot_s=_seconds(each.tpot_p99_ms))
        for name, each in settings.classes.items()
        if each.ttft_p99_ms is not None or each.tpot_p99_ms is not None
    }


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1e3


def with_classes(loaded: Loaded, workload: Workload) -> Loaded:
    """Return the settings with a table for each class of the workload, and its targets in it.

    Classes without a target give way to those that have one.
    """
    from headway.planning.demand import class_names
    from headway.report.figures import promised

    names = class_names(workload)
    targets = {name: promised(workload.targets, name) for name in names}
    any_promised = any(each is not None and each.are_any for each in targets.values())
    for name in names:
        values = _class_values(targets[name], gives_way=any_promised)
        loaded = _with_class(loaded, name, values)
    if any_promised and not is_set(loaded, "scheduler.policy"):
        loaded = planned(loaded, "targets are kept by slack", {"scheduler.policy": "slo"})
    return loaded


def _class_values(targets: Targets | None, *, gives_way: bool) -> dict[str, Any]:
    if targets is None or not targets.are_any:
        return {"best_effort": True} if gives_way else {}
    found = {"ttft_p99_ms": targets.ttft_s, "tpot_p99_ms": targets.tpot_s}
    return {key: value * 1e3 for key, value in found.items() if value is not None}


def _with_class(loaded: Loaded, name: str, values: Mapping[str, Any]) -> Loaded:
    """Return the settings with a class; what is set stays, but for targets."""
    known = loaded.settings.classes.get(name, ClassSettings())
    origins = dict(loaded.origins)
    for setting in table_settings("classes", name):
        origins.setdefault(setting.key, Origin("default"))
    kept = {
        key: value
        for key, value in values.items()
        if key != "best_effort" or origins[f"classes.{name}.{key}"].kind == "default"
    }
    origins |= {f"classes.{name}.{key}": Origin(_PLANNED, "the workload") for key in kept}
    classes = {**loaded.settings.classes, name: replace(known, **kept)}
    settings = replace(loaded.settings, classes=classes)
    return replace(loaded, settings=settings, origins=origins)


# ------------------------------------------------------------- machine and memory


def ground_of(args: argparse.Namespace, loaded: Loaded, workload: Workload) -> Ground:
    """Return settings, machine and memory.

    Raises:
        UsageError: they can't be; the message says what to change.
    """
    from headway.profiles.watched import watched

    loaded = with_classes(loaded, workload)
    _refuse_reservations(loaded.settings)
    limits = {
        "scheduler.max_num_seqs": _MOST_SEQS,
        "scheduler.max_num_batched_tokens": 8 * _MOST_SEQS,
    }
    counted = planned(loaded, "", limits)
    memory = None
    if counted.settings.kv.num_blocks is None and args.device is None:
        counted, memory = _with_blocks(counted)
    simulated = simulated_from(args, counted.settings)
    if memory is None:
        memory = _of_device(simulated, counted.settings)
    cost, seen = watched(simulated.machine.cost)
    simulated = replace(simulated, machine=replace(simulated.machine, cost=cost))
    return Ground(loaded, simulated, seen, memory)


def _refuse_reservations(settings: Settings) -> None:
    for name, each in settings.classes.items():
        if each.reserved_slots:
            raise UsageError(
                f"classes.{name}.reserved_slots: a plan chooses the slots itself; leave them out"
            )


def _with_blocks(loaded: Loaded) -> tuple[Loaded, KvMemory]:
    """Count the blocks as the server would have them for this model on this machine."""
    from headway.assembly import memory_of
    from headway.models.progress import on_standard_error
    from headway.planning.kv import KvMemory

    settings = loaded.settings
    facts = memory_of(settings, on_standard_error)
    kv, config = settings.kv, facts.config
    free = max(facts.available_bytes - facts.other_bytes, 0)
    said = (
        f"{kv.memory_utilization:g} x ({facts.available_bytes / 1e9:.4g} GB available - "
        f"{facts.other_bytes / 1e9:.4g} GB of weights and swap space)"
    )
    if kv.capacity_bytes is not None:
        said = "kv.capacity_bytes"
    num_elements = 2 * config.num_layers * config.num_kv_heads * config.head_dim * kv.block_size
    memory = KvMemory(
        num_layers=config.num_layers,
        hidden_size=config.hidden_size,
        num_kv_heads=config.num_kv_heads,
        head_dim=config.head_dim,
        element_bytes=facts.block_bytes / num_elements,
        kv_bytes=kv.capacity_bytes or kv.memory_utilization * free,
        said=said,
    )
    values = {"kv.num_blocks": facts.num_blocks, "model.max_model_len": facts.max_model_len}
    return planned(loaded, "", values), memory


def _of_device(simulated: Simulated, settings: Settings) -> KvMemory | None:
    """Return the memory of a device that is known by its data sheet."""
    from headway.planning.kv import KvMemory
    from headway.profiles.roofline import Roofline

    cost, kv = simulated.machine.cost, settings.kv
    if not isinstance(cost, Roofline) or kv.num_blocks is not None:
        return None
    model, number = cost.model, cost.num_devices
    total = kv.memory_utilization * cost.device.memory_bytes
    weights = model.weight_bytes / number
    return KvMemory(
        num_layers=model.num_layers,
        hidden_size=model.hidden_size // number,
        num_kv_heads=max(model.num_kv_heads // number, 1),
        head_dim=model.head_dim,
        element_bytes=model.kv_element_bytes,
        kv_bytes=max(total - weights, 0.0),
        said=(
            f"{kv.memory_utilization:g} x {cost.device.memory_bytes / 1e9:.4g} GB - "
            f"{weights / 1e9:.4g} GB of weights" + (", of each device" if number > 1 else "")
        ),
    )
