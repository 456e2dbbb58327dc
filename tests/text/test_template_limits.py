"""No template runs or grows without end, however it tries."""

from __future__ import annotations

from itertools import count

import pytest

from headway.errors import RequestError
from headway.text.chat_template import ChatTemplate
from headway.text.template_limits import TemplateLimits

USER = {"role": "user", "content": "hi"}
TIGHT = TemplateLimits(max_steps=20_000, max_chars=100_000, max_seconds=1e9)


DOUBLING = (
    "{{% set n = namespace(x={start}) %}}"
    "{{% for i in range(99) %}}{{% set n.x = n.x {operator} n.x %}}{{% endfor %}}"
)


def render(source: str, limits: TemplateLimits = TIGHT) -> str:
    return ChatTemplate(source, None, None, limits).render([USER])


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10 ** 9) %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) recursive %}{{ loop(range(99999)) }}{% endfor %}",
        "{% for i in range(99999) if i < 0 %}{% else %}{{ 1 }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) ~ f(n - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
        "{% macro f() %}{% for i in range(99999) %}{% endfor %}{% endmacro %}{{ f() }}",
        "{% set x %}{% for i in range(99999) %}{% endfor %}{% endset %}",
        "{% set c = cycler(1) %}{% for i in range(9999) %}{{ c.next() }}{{ c.next() }}{% endfor %}",
    ],
)
def test_loops_and_calls_end(source: str) -> None:
    with pytest.raises(RequestError, match=r"more than 20000 steps|Range too|recursion") as caught:
        render(source)
    assert caught.value.code == "chat_template_error"


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(9999) %}0123456789012345{% endfor %}",
        "{% set x %}{% for i in range(9999) %}0123456789012345{% endfor %}{% endset %}",
        "{% macro f() %}{% for i in range(9999) %}0123456789012345{% endfor %}{% endmacro %}"
        "{% set x = f() %}",
        DOUBLING.format(start="'ab'", operator="~"),
        DOUBLING.format(start="'ab'", operator="+"),
        DOUBLING.format(start="[1]", operator="+"),
        "{{ 'x' * 10 ** 9 }}",
        "{{ 999999999 * [1] }}",
        "{{ 9 ** (9 ** 9) }}",
        DOUBLING.format(start="9", operator="*"),
        "{{ '%0999999999d' % 1 }}",
        "{{ '%*d' % (999999999, 1) }}",
        "{{ '{:999999999}'.format(1) }}",
        "{{ '{:{}}'.format(1, '999999999') }}",
        "{{ '{a:{b}}'.format_map({'a': 1, 'b': '999999999'}) }}",
        "{{ '{{{:999999999}}}'.format(1) }}",
        "{% set f = '{:999999999}'.format %}{{ f(1) }}",
        "{{ '%(a)999999999d' % {'a': 1} }}",
        "{{ '%999999999d' | format(1) }}",
        "{{ 'x'.center(999999999) }}",
        "{{ 'x' | center(999999999) }}",
        "{{ 'x' | indent(999999999, first=true) }}",
        "{{ messages | tojson(indent=999999999) }}",
        "{{ ('a' * 9999).replace('a', 'b' * 9999) }}",
        "{{ ('a' * 9999) | replace('a', 'b' * 9999) }}",
        "{{ ('b' * 9999).join(['a'] * 9999) }}",
        "{{ (['a'] * 9999) | join('b' * 9999) }}",
        "{{ (['b' * 9999] * 9999) | join }}",
    ],
)
def test_values_stay_small(source: str) -> None:
    with pytest.raises(RequestError, match=r"longer than|more than|huge|wide|above") as caught:
        render(source)
    assert caught.value.code == "chat_template_error"


def test_time_is_limited() -> None:
    ticks = count()
    limits = TemplateLimits(max_seconds=3, clock=lambda: float(next(ticks)))
    source = "{% for i in range(99999) %}{% endfor %}"
    with pytest.raises(RequestError, match="more than 3 s"):
        render(source, limits)


def test_one_rendering_does_not_use_up_the_next() -> None:
    template = ChatTemplate("{% for i in range(15000) %}{% endfor %}ok", None, None, TIGHT)
    assert [template.render([USER]) for _ in range(3)] == ["ok"] * 3


def test_counting_changes_nothing_in_a_loop() -> None:
    source = (
        "{% for x in [3, 1, 2] %}{{ loop.index }}/{{ loop.length }}{{ loop.last }}"
        "{{ loop.previtem }}{{ loop.nextitem }} {% else %}none{% endfor %}"
        "{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}"
        "{% for x in undefined_name %}{% else %}empty{% endfor %}"
        "{% for x in [1, [2, [3]]] recursive %}{{ loop(x) if x is iterable else x }}{% endfor %}"
        "{% for x in range(4) if x % 2 %}{{ loop.length }}{% endfor %}{{ 'a' ~ 1 ~ none }}"
        "{% for c in 'xyz' | reverse %}{{ c }}{% endfor %}"
    )
    assert render(source) == ("1/3False1 2/3False32 3/3True1 a1empty12322a1Nonezyx")


def test_ordinary_formats_work() -> None:
    source = (
        "{{ '%s: 100%% *%05d*' % ('a', 7) }} {{ '%(a)s' | format(a=1) }} "
        "{{ '{{{0}: {{{1:>4}}}}}'.format('a', 12) }} {{ 'x'.center(5) }} {{ 'a,b'.split(',') }}"
    )
    assert render(source) == "a: 100% *00007* 1 {a: {  12}}   x   ['a', 'b']"


def test_names_of_the_meters_can_not_be_written() -> None:
    from headway.errors import ModelError

    with pytest.raises(ModelError):
        render("{{ [1] | headway loop }}")
