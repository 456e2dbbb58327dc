"""Whose a request is, and in which class it is served.

The class comes from the first of these that says one: the header of a trusted gateway,
``service_tier``, ``priority``, the tenant's default, the server's default. The tenant comes from
the header of a trusted gateway, else from the API key. Nothing else in a request says whose it is:
whoever could choose his tenant would choose the one with the shortest queue.
"""

from __future__ import annotations

from collections.abc import Mapping

from starlette.datastructures import Headers
from starlette.types import Scope

from headway.config import Settings
from headway.config.consistency import DEFAULT_CLASS
from headway.errors import RequestError
from headway.generation.terms import MAX_TENANT_CHARACTERS, Terms, check_terms
from headway.server.requests import GenerationRequest

#: Where the authentication leaves the tenant in the ASGI scope.
TENANT_KEY = "headway.tenant"

#: Values of ``service_tier`` that leave the class to what comes after it.
SILENT_TIERS = ("auto", "default")

#: The header that names the class of every answer.
CLASS_HEADER = "x-headway-class"


class Placement:
    """Says on which terms each request is served."""

    def __init__(self, settings: Settings) -> None:
        self._class_header = settings.server.class_header
        self._tenant_header = settings.server.tenant_header
        self._default_class = settings.default_class
        self._classes = tuple(settings.classes) or (DEFAULT_CLASS,)
        self._by_priority = _by_priority(settings)
        self._by_tenant = {
            name: tenant.default_class
            for name, tenant in settings.tenants.items()
            if tenant.default_class is not None
        }

    def terms(self, scope: Scope, request: GenerationRequest) -> Terms:
        """Return class, tenant and order of a request.

        Raises:
            RequestError: a class is named that does not exist, or a value means nothing.
        """
        headers = Headers(scope=scope)
        tenant = self._tenant(headers) or scope.get(TENANT_KEY, "")
        name = self._named(headers, request.service_tier)
        priority = request.priority
        if name is None and priority in self._by_priority:
            name, priority = self._by_priority[priority], None  # the class has the same one
        terms = Terms(
            class_name=name or self._by_tenant.get(tenant, self._default_class),
            tenant=tenant,
            priority=priority,
            expected_output_tokens=request.expected_output_tokens,
            cache_salt=request.cache_salt,
        )
        check_terms(terms)
        return terms

    def class_of(self, terms: Terms) -> str:
        """Return the class that the terms come to."""
        return terms.class_name or self._default_class

    def _tenant(self, headers: Headers) -> str:
        """Return the tenant that the gateway names."""
        tenant = _value(headers, self._tenant_header)
        if len(tenant) > MAX_TENANT_CHARACTERS:
            message = (
                f"Invalid header '{self._tenant_header}': must have at most "
                f"{MAX_TENANT_CHARACTERS} characters."
            )
            raise RequestError(message, code="invalid_value")
        return tenant

    def _named(self, headers: Headers, tier: str | None) -> str | None:
        """Return the class that header or ``service_tier`` names."""
        by_gateway = _value(headers, self._class_header)
        if by_gateway:
            return self._known(by_gateway, f"header '{self._class_header}'", None)
        if tier is None or tier in SILENT_TIERS:
            return None
        return self._known(tier, "'service_tier'", "service_tier")

    def _known(self, name: str, where: str, param: str | None) -> str:
        if name in self._classes:
            return name
        known = ", ".join(self._classes)
        message = f"Invalid {where}: there is no class '{name[:64]}'. Classes: {known}."
        raise RequestError(message, param=param, code="invalid_value")


def _value(headers: Headers, name: str | None) -> str:
    """Return the value of a header that is believed; empty if it is not there.

    Raises:
        RequestError: it is there twice, so one of them may be the client's.
    """
    values = headers.getlist(name) if name else []
    if len(values) > 1:
        message = f"Invalid header '{name}': it must not be sent more than once."
        raise RequestError(message, code="invalid_value")
    return values[0].strip() if values else ""


def _by_priority(settings: Settings) -> Mapping[int | None, str]:
    """Return the classes of which no other declares the same priority."""
    declared = [each.priority for each in settings.classes.values()]
    return {
        each.priority: name
        for name, each in settings.classes.items()
        if each.priority is not None and declared.count(each.priority) == 1
    }
