"""What is wrong with a profile, or with what one is made from."""

from __future__ import annotations

from headway.errors import UsageError


class ProfileError(UsageError):
    """A profile, a table of measurements or a model's configuration can't be used."""
