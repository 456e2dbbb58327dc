"""How a setting is declared: type, default, meaning and allowed range stand in one place.

Everything else is derived from the declarations: the keys of the file, the environment variables,
the flags with their help, the checks, and the printed configuration.
"""

from __future__ import annotations

import dataclasses
import types
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from headway.config.values import Rule, accept
from headway.errors import ConfigError

_T = TypeVar("_T")
_METADATA_KEY = "headway"


def setting(
    default: _T,
    meaning: str,
    *,
    unit: str = "",
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    planned: tuple[str, ...] = (),
    flag: str | None = None,
    secret: bool = False,
) -> _T:
    """Declare one field of a section.

    Args:
        default: the value when nothing sets it.
        meaning: what it does, as a phrase without a full stop.
        unit: of a number, unless the name says it.
        at_least: smallest value, itself allowed; ``above`` excludes it.
        above: the bound that a number must exceed.
        at_most: largest value, itself allowed; ``below`` excludes it.
        below: the bound that a number must stay under.
        planned: choices that a later release will know, so that the refusal can say so.
        flag: the flag's name where it isn't the field's.
        secret: never shown.
    """
    extra = _Extra(meaning, unit, at_least, above, at_most, below, planned, flag, secret)
    field: _T = dataclasses.field(default=default, metadata={_METADATA_KEY: extra})
    return field


@dataclass(frozen=True, slots=True)
class _Extra:
    meaning: str
    unit: str
    at_least: float | None
    above: float | None
    at_most: float | None
    below: float | None
    planned: tuple[str, ...]
    flag: str | None
    secret: bool


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting, as read from its declaration."""

    section: str
    name: str
    default: object
    meaning: str
    unit: str
    secret: bool
    flag: str
    rule: Rule

    @property
    def key(self) -> str:
        """``section.name``, as in messages and in ``Loaded.origins``."""
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable."""
        return f"HEADWAY_{self.section}_{self.name}".upper()


class Section:
    """A table of the configuration: checks each value against its declaration when it is made."""

    __slots__ = ()
    section: ClassVar[str]

    def __post_init__(self) -> None:
        """Bring each value into its declared type; ConfigError for the first that isn't allowed."""
        for declared in settings_of(type(self)):
            value = getattr(self, declared.name)
            try:
                object.__setattr__(self, declared.name, accept(declared.rule, value))
            except ValueError as error:
                shown = "" if declared.secret else f" = {value!r}"
                raise ConfigError(f"{declared.key}{shown}: {error}") from None


def settings_of(section: type[Section]) -> tuple[Setting, ...]:
    """Read the declarations of one section, in their order."""
    hints = get_type_hints(section)
    fields = dataclasses.fields(section)  # type: ignore[arg-type]  # every section is a dataclass
    return tuple(_read(section.section, field, hints[field.name]) for field in fields)


def _read(section: str, field: dataclasses.Field[Any], annotation: object) -> Setting:
    extra: _Extra = field.metadata[_METADATA_KEY]
    kind, optional, choices = _type_of(annotation)
    rule = Rule(
        kind=kind,
        optional=optional,
        choices=choices,
        planned=extra.planned,
        at_least=extra.at_least,
        above=extra.above,
        at_most=extra.at_most,
        below=extra.below,
        in_bytes=field.name.endswith("_bytes"),
    )
    flag = "--" + (extra.flag or field.name).replace("_", "-")
    return Setting(
        section, field.name, field.default, extra.meaning, extra.unit, extra.secret, flag, rule
    )


def _type_of(annotation: object) -> tuple[type, bool, tuple[str, ...]]:
    """Split an annotation into the plain type, whether None is allowed, and the choices."""
    optional = False
    if get_origin(annotation) in (Union, types.UnionType):
        members = [member for member in get_args(annotation) if member is not type(None)]
        assert len(members) == 1, annotation
        annotation, optional = members[0], True
    if get_origin(annotation) is Literal:
        return str, optional, get_args(annotation)
    plain = get_origin(annotation) or annotation
    assert plain in (str, int, float, bool, tuple), annotation
    return plain, optional, ()
