"""On which terms a request is served: whose it is, in which class, before whom."""

from __future__ import annotations

from dataclasses import dataclass

from headway.config.traffic import MAX_PRIORITY
from headway.generation.params import INT64, is_integer, refuse

MAX_TENANT_CHARACTERS = 128
MAX_SALT_CHARACTERS = 512


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Everything about a request that is not its text.

    Attributes:
        class_name: the service class; None is the default one.
        tenant: who is charged for fairness, and with whom prefixes are shared.
        priority: lower goes first; None is that of the class.
        expected_output_tokens: how long the answer will be, as far as the client knows.
        cache_salt: only requests with the same one share the KV of equal beginnings.
    """

    class_name: str | None = None
    tenant: str = ""
    priority: int | None = None
    expected_output_tokens: int | None = None
    cache_salt: str | None = None


def check_terms(terms: Terms) -> None:
    """Refuse types and values that mean nothing, or could hurt others.

    Raises:
        RequestError: names the parameter at fault.
    """
    if not isinstance(terms, Terms):
        refuse("terms", f"must be Terms, not {type(terms).__name__}.")
    if terms.class_name is not None:
        _check_text("class_name", terms.class_name, 1, MAX_TENANT_CHARACTERS)
    _check_text("tenant", terms.tenant, 0, MAX_TENANT_CHARACTERS)
    _check_integer("priority", terms.priority, -MAX_PRIORITY, MAX_PRIORITY)
    _check_integer("expected_output_tokens", terms.expected_output_tokens, 1, INT64)
    if terms.cache_salt is not None:
        _check_text("cache_salt", terms.cache_salt, 1, MAX_SALT_CHARACTERS)


def _check_text(param: str, value: str, at_least: int, at_most: int) -> None:
    is_good = isinstance(value, str) and at_least <= len(value) <= at_most and _is_unicode(value)
    if not is_good:
        refuse(param, f"must be a text of {at_least} to {at_most} characters.")


def _is_unicode(text: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in text)


def _check_integer(param: str, value: int | None, at_least: int, at_most: int) -> None:
    if value is None:
        return
    if not is_integer(value) or not at_least <= value <= at_most:
        refuse(param, f"must be an integer of at least {at_least} and up to {at_most}.")


def salt_of(terms: Terms, *, isolates_tenants: bool) -> str:
    """Return the salt of a request's prefixes; tenants are told apart by a length before each.

    Without that length, tenant ``a`` with salt ``bc`` would share with tenant ``ab`` and ``c``.
    """
    salt = terms.cache_salt or ""
    return f"{len(terms.tenant)}:{terms.tenant}{salt}" if isolates_tenants else salt
