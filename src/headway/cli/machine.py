"""Flags that say what is simulated: a profile, or a device and a model, and how many replicas."""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from headway.cli.options import load
from headway.config import Loaded, Settings
from headway.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from headway.profiles.interference import Interference
    from headway.profiles.profile import Profile
    from headway.profiles.shape import StepCost
    from headway.sim.replica import Machine


def add_machine(parser: argparse.ArgumentParser) -> None:
    """Add the flags."""
    group = parser.add_argument_group(
        "machine",
        "What steps cost: a profile, a device by arithmetic, or the [simulation] settings.",
    )
    group.add_argument("--profile", metavar="FILE", help="profile, as headway calibrate writes it")
    group.add_argument("--device", metavar="NAME", help="by its data sheet, as a100-80gb")
    group.add_argument(
        "--model-config", metavar="FILE", help="config.json of the model, with --device"
    )
    group.add_argument("--weights", metavar="FORMAT", help="of the model, if not as it is stored")
    group.add_argument(
        "--tensor-parallel", type=int, metavar="N", default=1, help="devices of each replica"
    )


ROUTERS = ("round-robin", "least-loaded", "prefix-aware", "class-isolated")


@dataclass(frozen=True, slots=True)
class Simulated:
    """What is simulated.

    Attributes:
        machine: each replica.
        name: of model and machine.
        source: where the step costs are from.
        interference: how the machine slows down from time to time, if that is known.
    """

    machine: Machine
    name: str
    source: str
    interference: Interference | None = None

    def replicas(self, count: int, cost: StepCost, seed: int) -> list[Machine]:
        """Return so many machines with these costs, each slowed down at times of its own."""
        from headway.profiles.interference import costs_of_engine

        numbers = range(seed * count, (seed + 1) * count)
        costs = [costs_of_engine(cost, self.interference, number) for number in numbers]
        return [replace(self.machine, cost=each) for each in costs]


def load_simulated(args: argparse.Namespace) -> Loaded:
    """Load the settings; where ``[simulation]`` says what steps cost, that executor is meant."""
    if args.profile is None and args.device is None and "model.executor" not in vars(args):
        args = argparse.Namespace(**{**vars(args), "model.executor": "simulated"})
    return load(args)


def simulated_from(args: argparse.Namespace, settings: Settings) -> Simulated:
    """Return the machine that flags and settings say.

    Raises:
        UsageError: they contradict each other, or leave something open; the message says what.
    """
    return simulated_on(_profile(args, settings), settings, _context(args, settings))


def simulated_on(profile: Profile, settings: Settings, context: int | None) -> Simulated:
    """Return the machine of a profile; without ``context`` the longest sequence is the model's.

    Raises:
        ConfigError: the settings don't fit to it.
    """
    from headway.config.scheduling import scheduler_config
    from headway.profiles.roofline import Roofline
    from headway.sim.replica import Machine

    cost = profile.device
    num_blocks = settings.kv.num_blocks
    if num_blocks is None and isinstance(cost, Roofline):
        kv = settings.kv
        if kv.capacity_bytes is not None:
            raise ConfigError(
                "kv.capacity_bytes is not for --device, whose memory the data sheet says: set "
                "kv.num_blocks or kv.memory_utilization"
            )
        num_blocks = cost.num_kv_blocks(block_size=kv.block_size, utilization=kv.memory_utilization)
        if num_blocks < 1:
            raise ConfigError(f"{profile.name}: no KV block fits beside the weights")
    if num_blocks is None or context is None:
        num_blocks, context = _of_model(settings, num_blocks, context)
    config = scheduler_config(
        settings,
        max_model_len=context,
        num_blocks=num_blocks,
        num_swap_blocks=_num_swap_blocks(settings, cost),
    )
    if profile.overlaps:
        limits = replace(config.limits, max_plans_in_flight=2)
        config = replace(config, limits=limits)
    machine = Machine(
        config=config,
        cost=cost,
        host=None if profile.host is None else profile.host.seconds,
    )
    return Simulated(machine, profile.name, profile.source, profile.interference)


def _profile(args: argparse.Namespace, settings: Settings) -> Profile:
    from headway.config.scheduling import simulated_costs
    from headway.profiles.profile import Profile, read_profile

    if args.profile is not None:
        if args.device is not None:
            raise UsageError("--profile and --device both say what steps cost: leave out one")
        _refuse_model(args, "--profile")
        return read_profile(Path(args.profile))
    if args.device is not None:
        return _roofline(args)
    _refuse_model(args, "the [simulation] settings")
    return Profile(
        name="simulated",
        source="the [simulation] settings",
        device=simulated_costs(settings.simulation),
    )


def _refuse_model(args: argparse.Namespace, what: str) -> None:
    for flag, value in (("--model-config", args.model_config), ("--weights", args.weights)):
        if value is not None:
            raise UsageError(f"{flag} goes with --device, and not with {what}")
    if args.tensor_parallel != 1:
        raise UsageError(f"--tensor-parallel goes with --device, and not with {what}")


def _roofline(args: argparse.Namespace) -> Profile:
    from headway.profiles.devices import find_device
    from headway.profiles.model_shape import read_model_shape
    from headway.profiles.profile import Profile
    from headway.profiles.roofline import Roofline

    if args.model_config is None:
        raise UsageError("--device needs --model-config, the config.json of the model")
    shape = read_model_shape(Path(args.model_config), weights=args.weights)
    cost = Roofline(shape, find_device(args.device), num_devices=args.tensor_parallel)
    number = f"{args.tensor_parallel} x " if args.tensor_parallel > 1 else ""
    return Profile(
        name=f"{_model_name(Path(args.model_config))} on {number}{args.device}",
        source="arithmetic on the data sheet (roofline)",
        device=cost,
    )


def _model_name(path: Path) -> str:
    """Return the name of the folder, where the file is one of many with the same name."""
    folder = path.resolve().parent
    return folder.name if path.name == "config.json" else path.stem


def _context(args: argparse.Namespace, settings: Settings) -> int | None:
    """Return the longest sequence, as far as it is said."""
    wanted = settings.model.max_model_len
    if wanted is not None or args.model_config is None:
        return wanted
    path = Path(args.model_config)
    values = json.loads((path / "config.json" if path.is_dir() else path).read_text("utf-8"))
    values = values.get("text_config") or values
    longest = values.get("max_position_embeddings")
    if not isinstance(longest, int):
        raise UsageError(f"{path} says nothing of its context: set --max-model-len")
    return longest


def _of_model(settings: Settings, num_blocks: int | None, context: int | None) -> tuple[int, int]:
    """Return blocks and context as the server would have them for this model on this machine."""
    from headway.assembly import scheduler_config_of
    from headway.models.progress import on_standard_error

    limits = scheduler_config_of(settings, on_standard_error).limits
    return num_blocks or limits.num_blocks, context or limits.max_model_len


def _num_swap_blocks(settings: Settings, cost: object) -> int:
    from headway.profiles.roofline import Roofline

    wanted = settings.kv.swap_space_bytes
    if not wanted:
        return 0
    if not isinstance(cost, Roofline):
        raise UsageError("--swap-space-bytes needs --device, which knows the size of a block")
    return int(wanted / (cost.model.kv_bytes_per_token * settings.kv.block_size))
