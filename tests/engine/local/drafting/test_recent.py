from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gearshift.engine.local.drafting import RecentOutputs, TurnDrafts
from gearshift.engine.local.drafting.recent import MOST_OUTPUTS

SCOPES = st.sampled_from(["a", "b", "c"])
OUTPUTS = st.lists(st.tuples(SCOPES, st.integers(1, 30)), max_size=60)


def test_a_scope_sees_its_own_outputs_only() -> None:
    recent = RecentOutputs()
    recent.add("mine", range(100, 140))
    prompt = [100, 101, 102]
    assert list(TurnDrafts(prompt, (), recent.view("mine")).propose(3).tokens)[:1] == [103]
    assert not TurnDrafts(prompt, (), recent.view("other")).propose(3).tokens
    assert not TurnDrafts(prompt, (), recent.view("")).propose(3).tokens


def test_a_cold_turn_never_drafts_from_another_turn() -> None:
    recent = RecentOutputs()
    recent.add("mine", range(100, 140))
    cold = TurnDrafts([100, 101, 102], ())
    for token in range(103, 130):
        assert not cold.propose(8).tokens
        cold.append([token])


def test_a_turn_does_not_see_outputs_that_came_after_it_began() -> None:
    recent = RecentOutputs()
    view = recent.view("mine")
    recent.add("mine", range(100, 140))
    assert not TurnDrafts([100, 101, 102], (), view).propose(3).tokens


@given(OUTPUTS)
def test_memory_is_bounded_per_scope_and_in_all(outputs: list[tuple[str, int]]) -> None:
    recent = RecentOutputs(per_scope=40, in_all=70)
    for number, (scope, length) in enumerate(outputs):
        recent.add(scope, [number] * length)
        held = {name: sum(len(o.tokens) for o in recent.view(name).outputs) for name in ("a", "b", "c")}
        assert max(held.values()) <= 40
        assert sum(held.values()) == recent.tokens <= 70
        assert all(len(recent.view(name).outputs) <= MOST_OUTPUTS for name in held)
        latest = recent.view(scope).outputs[0].tokens
        assert list(latest) == [number] * length


def test_the_scope_that_was_used_longest_ago_goes_first() -> None:
    recent = RecentOutputs(per_scope=10, in_all=20)
    recent.add("a", [1] * 10)
    recent.add("b", [2] * 10)
    recent.view("a")
    recent.add("c", [3] * 10)
    assert recent.view("a").outputs and recent.view("c").outputs
    assert not recent.view("b").outputs


def test_of_an_output_that_is_too_long_the_end_is_kept() -> None:
    recent = RecentOutputs(per_scope=10, in_all=20)
    recent.add("a", list(range(25)))
    assert list(recent.view("a").outputs[0].tokens) == list(range(15, 25))


def test_an_empty_output_takes_no_place() -> None:
    recent = RecentOutputs()
    recent.add("a", [])
    assert not recent.view("a").outputs
    assert recent.tokens == 0
