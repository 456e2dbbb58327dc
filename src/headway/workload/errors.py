"""What is wrong with a workload."""

from __future__ import annotations

from headway.errors import UsageError


class WorkloadError(UsageError):
    """A trace can't be read, or numbers that describe a workload make none."""
