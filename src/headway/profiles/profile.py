"""A profile: what the steps of one model on one machine cost, as a JSON file.

The file names its kind: ``linear`` (given), ``fitted`` (to a step log), ``roofline`` (arithmetic),
``kernels`` and ``splitwise`` (measured tables, which are in the file).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headway.core.costs import StepCosts
from headway.profiles.collective import AllReduce
from headway.profiles.devices import Device
from headway.profiles.errors import ProfileError
from headway.profiles.fitted import FitError, FittedCosts
from headway.profiles.grid import Grid
from headway.profiles.interference import Interference
from headway.profiles.model_shape import Experts, ModelShape, WeightFormat
from headway.profiles.roofline import Efficiency, Roofline
from headway.profiles.shape import StepCost
from headway.profiles.skew import SkewTable
from headway.profiles.splitwise import SplitwiseCosts
from headway.profiles.tables import AttentionTable, KernelTables, ModelFacts

FORMAT = "headway profile"
VERSION = 1

Json = dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Step costs, with where they are from.

    Attributes:
        name: of model and machine.
        source: where the numbers are from, and what is to be known of them.
        device: the time of a step on the device.
        host: what the host does beside it; None is nothing.
        overlaps: whether it does so while the device works on the step before.
        interference: how the machine slowed down while it was measured; None is not known.
    """

    name: str
    source: str
    device: StepCost
    host: FittedCosts | None = None
    overlaps: bool = False
    interference: Interference | None = None


def write_profile(path: Path, profile: Profile) -> None:
    """Write a profile.

    Raises:
        ProfileError: the file can't be written, or the cost model has no form in a file.
    """
    text = json.dumps(profile_as_json(profile))
    try:
        path.write_text(text + "\n", encoding="utf-8")
    except OSError as error:
        raise ProfileError(f"{path} can't be written: {error.strerror}") from error


def read_profile(path: Path) -> Profile:
    """Read a profile.

    Raises:
        ProfileError: it can't be read, or is none of this version.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ProfileError(f"{path} can't be read: {error.strerror}") from error
    except ValueError as error:
        raise ProfileError(f"{path} is no JSON: {error}") from error
    try:
        return profile_from_json(values)
    except ProfileError as error:
        raise ProfileError(f"{path}: {error}") from error


def profile_as_json(profile: Profile) -> Json:
    """Return a profile as plain values."""
    for kind, (cls, encode, _) in _KINDS.items():
        if isinstance(profile.device, cls):
            return {
                "format": FORMAT,
                "version": VERSION,
                "name": profile.name,
                "source": profile.source,
                "kind": kind,
                "device": encode(profile.device),
                "host": None if profile.host is None else _fitted_as_json(profile.host),
                "overlaps": profile.overlaps,
                "interference": _interference_as_json(profile.interference),
            }
    raise ProfileError(f"{type(profile.device).__name__} can't be written to a file")


def profile_from_json(values: Any) -> Profile:
    """Return the profile that plain values state.

    Raises:
        ProfileError: they are no profile, or one of another version.
    """
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise ProfileError("it is no profile")
    if values.get("version") != VERSION:
        raise ProfileError(
            f"it is a profile of version {values.get('version')}; this is read: {VERSION}"
        )
    try:
        _, _, decode = _KINDS[values["kind"]]
        return Profile(
            name=values["name"],
            source=values["source"],
            device=decode(values["device"]),
            host=None if values["host"] is None else _fitted_from_json(values["host"]),
            overlaps=values["overlaps"],
            interference=_interference_from_json(values.get("interference")),
        )
    except KeyError as error:
        raise ProfileError(f"it lacks or doesn't know {error}") from error
    except (AttributeError, IndexError, TypeError, ValueError) as error:
        raise ProfileError(f"it is damaged: {error}") from error


def _interference_as_json(interference: Interference | None) -> Json | None:
    return None if interference is None else asdict(interference)


def _interference_from_json(values: Json | None) -> Interference | None:
    return None if values is None else Interference(**values)


# ---------------------------------------------------------------- kinds


def _linear_from_json(values: Json) -> StepCosts:
    return StepCosts(**values)


def _fitted_as_json(costs: FittedCosts) -> Json:
    return asdict(costs)


def _fitted_from_json(values: Json) -> FittedCosts:
    ranges = {name: (least, most) for name, (least, most) in values["ranges"].items()}
    error = FitError(**values["error"])
    return FittedCosts(**{**values, "ranges": ranges, "error": error})


def _roofline_as_json(costs: Roofline) -> Json:
    return {
        "model": asdict(costs.model),
        "machine": asdict(costs.device),
        "num_devices": costs.num_devices,
        "efficiency": asdict(costs.efficiency),
        "all_reduce": None if costs.all_reduce is None else asdict(costs.all_reduce),
    }


def _roofline_from_json(values: Json) -> Roofline:
    model = values["model"]
    experts = model["experts"]
    shape = ModelShape(
        **{
            **model,
            "experts": None if experts is None else Experts(**experts),
            "weights": WeightFormat(**model["weights"]),
        }
    )
    return Roofline(
        shape,
        Device(**values["machine"]),
        num_devices=values["num_devices"],
        efficiency=Efficiency(**values["efficiency"]),
        all_reduce=_all_reduce(values),
    )


def _all_reduce(values: Json) -> AllReduce | None:
    found = values["all_reduce"]
    return None if found is None else AllReduce(**found)


def _kernels_as_json(costs: KernelTables) -> Json:
    attention = costs.attention
    skew = attention.skew
    if attention.adds_parts:
        raise ProfileError("attention that adds its parts is wrong on purpose, so it isn't kept")
    return {
        "dense": {name: list(grid.rows()) for name, grid in costs.dense.items()},
        "per_sequence": {name: list(grid.rows()) for name, grid in costs.per_sequence.items()},
        "prefill": list(attention.prefill.rows()),
        "decode": list(attention.decode.rows()),
        "mixed": list(attention.mixed.rows()),
        "skew": None if skew is None else list(skew.rows()),
        "model": asdict(costs.model),
        "all_reduce": None if costs.all_reduce is None else asdict(costs.all_reduce),
    }


def _kernels_from_json(values: Json) -> KernelTables:
    rows = values["skew"]
    skew = None if rows is None else SkewTable((chunk, tuple(n), alpha) for chunk, n, alpha in rows)
    return KernelTables(
        {name: _grid(rows) for name, rows in values["dense"].items()},
        {name: _grid(rows) for name, rows in values["per_sequence"].items()},
        AttentionTable(
            _grid(values["prefill"]), _grid(values["decode"]), _grid(values["mixed"]), skew
        ),
        ModelFacts(**values["model"]),
        _all_reduce(values),
    )


def _grid(rows: list[tuple[list[float], float]]) -> Grid:
    return Grid((tuple(key), value) for key, value in rows)


def _splitwise_as_json(costs: SplitwiseCosts) -> Json:
    names = ("prompt", "batch", "single", "context")
    return {name: getattr(costs, name) for name in names}


def _splitwise_from_json(values: Json) -> SplitwiseCosts:
    return SplitwiseCosts(**values)


_KINDS: Mapping[str, tuple[type, Callable[[Any], Json], Callable[[Json], StepCost]]] = {
    "linear": (StepCosts, asdict, _linear_from_json),
    "fitted": (FittedCosts, _fitted_as_json, _fitted_from_json),
    "roofline": (Roofline, _roofline_as_json, _roofline_from_json),
    "kernels": (KernelTables, _kernels_as_json, _kernels_from_json),
    "splitwise": (SplitwiseCosts, _splitwise_as_json, _splitwise_from_json),
}
"""By the name in the file: the class, and how it is written and read."""
