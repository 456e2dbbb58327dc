"""The collector of Python, which must not stop what is measured."""

from __future__ import annotations

import gc

import pytest

from headway.engine.garbage import collection_put_off


def test_the_collector_is_off_for_a_while() -> None:
    assert gc.isenabled()
    with collection_put_off():
        assert not gc.isenabled()
    assert gc.isenabled()


def test_the_collector_is_on_again_after_an_error() -> None:
    with pytest.raises(KeyError), collection_put_off():
        raise KeyError
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    try:
        with collection_put_off():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
