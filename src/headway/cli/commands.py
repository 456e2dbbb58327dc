"""The table of commands. It is static, so that ``headway --help`` imports none of them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Command:
    """One command; ``headway.cli.<name>`` is its module."""

    name: str
    arguments: str  # as in the usage line
    summary: str

    @property
    def module(self) -> str:
        """The module with ``configure`` and ``run``."""
        return f"headway.cli.{self.name}"


COMMANDS = (
    Command("serve", "[MODEL]", "serve a model over HTTP, as OpenAI's API"),
    Command("generate", "PROMPT", "answer one prompt on the terminal"),
    Command("bench", "[URL]", "put load on a server and report what it made of it"),
    Command("compare", "", "run a workload without batches, and with each kind of them"),
    Command("simulate", "", "run a workload through the scheduler on a virtual clock"),
    Command(
        "plan", "", "set up batch, KV and instances for targets, with the chance that they hold"
    ),
    Command("advise", "", "say whether to batch, to scale, or to isolate classes, by simulation"),
    Command("calibrate", "[MODEL]", "measure what steps cost on this machine, and write a profile"),
    Command("replay", "JOURNAL", "run a recorded journal through the scheduler and compare"),
    Command("fidelity", "CHECK", "show how true the simulator is, check by check"),
    Command("config", "", "show the effective settings and where each comes from"),
    Command("models", "", "list the models that Headway knows by name"),
)
