"""The names that ``headway`` itself offers."""

import importlib

import pytest

import headway
from headway.config import all_settings


def test_every_public_name_can_be_loaded() -> None:
    for name in headway.__all__:
        assert getattr(headway, name) is not None
        assert name in dir(headway)


def test_public_names_come_from_where_they_are_defined() -> None:
    for name, home in headway._HOMES.items():
        assert getattr(headway, name) is getattr(importlib.import_module(home), name)
    assert {*headway._HOMES, "__version__"} == set(headway.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'LLMM'"):
        _ = headway.LLMM


def test_variables_do_not_collide_with_reserved_ones() -> None:
    variables = {setting.variable for setting in all_settings()}
    assert not variables & {"HEADWAY_CONFIG", "HEADWAY_CACHE"}
