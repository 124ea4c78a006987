"""Chat templates run as Hugging Face writes them, and cannot run away."""

from __future__ import annotations

from datetime import datetime

import pytest

from gearshift.engine.local.template import MAX_SOURCE, ChatTemplate, TemplateRefusal
from gearshift.engine.local.template_filters import TemplateProblem

NOW = datetime(2026, 5, 4, 13, 0)
MESSAGES = [{"role": "user", "content": " hi "}, {"role": "assistant", "content": "é"}]


def render(source: str) -> str:
    return ChatTemplate(source, {"bos_token": "<s>"}).render(MESSAGES, NOW)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            "{% for m in messages %}\n  {% if m.role == 'user' %}\nU{{ m.content|trim }}\n  {% endif %}\n{% endfor %}",
            "Uhi\n",
        ),
        ("{{ bos_token }}{{ messages[1]['content'] | upper }}", "<s>É"),
        ("{{ messages | map(attribute='role') | join('+') ~ '!' }}", "user+assistant!"),
        ("{{ messages[1] | tojson }}", '{"role": "assistant", "content": "é"}'),
        ("{{ {'b': [1, none, true]} | tojson(indent=1) }}", '{\n "b": [\n  1,\n  null,\n  true\n ]\n}'),
        ("{% for x in [1, 2, 3] %}{% if x == 2 %}{% continue %}{% endif %}{{ x }}{% endfor %}", "13"),
        ("{% for m in messages %}{{ loop.index }}{% if loop.last %}.{% endif %}{% endfor %}", "12."),
        ("{% set ns = namespace(n=0) %}{% for m in messages %}{% set ns.n = ns.n + 1 %}{% endfor %}{{ ns.n }}", "2"),
        ("{% generation %}x{% endgeneration %}", "x"),
        ("{% macro f(x) %}[{{ x }}]{% endmacro %}{{ f('a') + f('b') }}", "[a][b]"),
        ("{{ strftime_now('%d %b %Y') }}", "04 May 2026"),
        ("{{ 'a<b'.split('<')[0] ~ 'x'.replace('x', 'y') ~ ('%s-%03d' % ('z', 7)) }}", "ayz-007"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}{{ tools is none }}", "1True"),
        ("{{ '<b>' | safe + '<i>' }}{{ undefined_name or 'none' }}", "<b><i>none"),
    ],
)
def test_the_dialect(source: str, wanted: str) -> None:
    assert render(source) == wanted


GROW = "{% set ns = namespace(x='aaaaaaaa') %}{% for i in range(60) %}{% set ns.x = STEP %}{% endfor %}{{ ns.x }}"
LAUGH = "{% set a = ['x' * 100] %}" + "{% set a = [a, a, a, a, a, a, a, a, a, a] %}" * 20


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(10**9) %}x{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(9999) %}{% for j in range(9999) %}" + "x" * 5000 + "{% endfor %}{% endfor %}",
        "{% macro f() %}" + "x" * 50000 + "{% endmacro %}{% for i in range(99999) %}{{ f() | length }}{% endfor %}",
        "{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 10 ** (10 ** 9) }}",
        GROW.replace("STEP", "ns.x + ns.x"),
        GROW.replace("STEP", "ns.x ~ ns.x"),
        GROW.replace("STEP", "ns.x | replace('a', 'aaaaaa')"),
        GROW.replace("STEP", "ns.x.replace('a', 'aaaaaa')"),
        GROW.replace("STEP", "[ns.x, ns.x, ns.x] | join(ns.x)"),
        GROW.replace("STEP", "ns.x.join([ns.x, ns.x, ns.x])"),
        "{% set x %}aaaaaaaaaaaaaaaa{% endset %}" + "{% set x %}{{ x }}{{ x }}{{ x }}{% endset %}" * 40 + "{{ x }}",
        LAUGH + "{{ a }}",
        LAUGH + "{{ a | tojson }}",
        LAUGH + "{{ a | string | length }}",
        LAUGH + "{{ '%s' % a }}",
        "{{ 'a'.ljust(10**9) }}",
        "{{ 'a' | center(10**9) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d' % (1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ lipsum(10**6) }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ messages.append(1) }}",
        "{% include 'other' %}",
        "{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}",
        "{% for %}",
        "x" * (MAX_SOURCE + 1),
    ],
)
def test_templates_that_run_away_or_reach_out_end_with_a_problem(source: str) -> None:
    with pytest.raises(TemplateProblem) as caught:
        render(source)
    assert len(str(caught.value)) < 400


def test_a_refusal_is_told_apart() -> None:
    with pytest.raises(TemplateRefusal, match="no system role"):
        render("{{ raise_exception('no system role') }}")
