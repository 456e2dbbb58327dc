"""The load client: sends a workload and reports as the simulator does.

It knows servers by their API only. What answers in this process (``--offline``) comes in as a
:class:`Sender`.
"""

from headway.bench.clock import Clock, RealClock
from headway.bench.driver import Driver, Measurement
from headway.bench.errors import ExchangeError, TargetError
from headway.bench.job import Job, Now, Send, Sender
from headway.bench.ramp import climb
from headway.bench.session import Options, Session, attains
from headway.bench.target import parse_url

__all__ = [
    "Clock",
    "Driver",
    "ExchangeError",
    "Job",
    "Measurement",
    "Now",
    "Options",
    "RealClock",
    "Send",
    "Sender",
    "Session",
    "TargetError",
    "attains",
    "climb",
    "parse_url",
]
