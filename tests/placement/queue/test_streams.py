"""Random streams with teams, priorities, preemption and lost nodes; `world` checks every plan."""

from collections.abc import Callable
from dataclasses import replace

from hypothesis import event, given, settings
from hypothesis import strategies as st

from rackyard.placement.decide import decide
from rackyard.placement.model import Request
from rackyard.placement.queue import Gang, Policy, Team

World = Callable[..., object]
TEAMS = [
    (),
    (Team("a", 16), Team("b", 16)),
    (Team("a", 8, ceiling=16), Team("b", 8, ceiling=24), Team("c", 0, weight=2.0)),
    (Team("a", 24), Team("b", 24)),
]
"""Without quotas; all of the site owned; half of it; more than there is."""
POLICIES = st.builds(
    Policy,
    patience=st.sampled_from([20.0, 1e9]),
    elders=st.integers(1, 2),
    reservations=st.integers(1, 4),
    overrun=st.just(5.0),
    unknown=st.just(20.0),
    restart=st.sampled_from([0.0, 3.0]),
    exempt=st.sampled_from([0.0, 4.0]),
    worth=st.sampled_from([0.0, 5.0]),
    stop=st.just(1.0),
    reclaim=st.sampled_from(["any", "any", "lower"]),
    preemptions=st.sampled_from([1, 8]),
    trials=st.sampled_from([8, 512]),
)
requests = st.builds(
    Request,
    gpus=st.sampled_from([1, 2, 3, 4, 4, 8, 8, 12, 16, 32, 6, 64]),
    segment_gpus=st.sampled_from([None, None, None, 4, 8, 16]),
    exclusive=st.sampled_from([False, False, False, True]),
    spares=st.sampled_from([0, 0, 0, 1]),
    gpus_per_node=st.sampled_from([None, None, None, 2]),
)
jobs = st.builds(
    lambda request, lasts, **rest: (Gang(name="", request=request, **rest), lasts),
    request=requests,
    lasts=st.floats(0.5, 30.0),
    team=st.sampled_from(["a", "a", "b", "c"]),
    priority=st.sampled_from([0, 0, 1, 2, 9]),
    estimate=st.sampled_from([None, 0.5, 5.0, 20.0, 30.0]),
    preemptible=st.sampled_from([True, True, True, False]),
)
losses = st.lists(st.tuples(st.integers(0, 60), st.integers(0, 7), st.booleans()), max_size=6)
"""Step, node, and whether it comes back some steps later."""


@settings(max_examples=60)
@given(
    st.lists(st.tuples(jobs, st.floats(0.0, 6.0)), min_size=4, max_size=40),
    st.sampled_from(TEAMS),
    POLICIES,
    st.sampled_from([0.0, 1.0]),
    losses,
)
def test_every_plan_holds_whatever_happens(
    world: World, stream: list, teams: tuple, policy: Policy, stop: float, lost: list
) -> None:
    here = world(policy, teams, stop)
    for step, ((gang, lasts), gap) in enumerate(stream):
        for at, node, back in lost:
            if at == step:
                here.lose(node)
            elif back and at + 5 == step:
                here.yard.restore([node])
        here.submit(replace(gang, name=f"g{step:02d}"), lasts)
        here.plan()
        here.save(step)
        here.run_until(here.now + gap)
    here.yard.out[:] = False
    here.plan()
    here.run_until(here.now + 5000.0)
    event(f"preemptions: {min(3, len(here.preempted))}")
    if policy.trials > 100:  # else what never fits may use them all up
        for name, gang in here.waiting.items():
            assert here.last.reasons[name].kind in ("ceiling", "quota") or decide(gang.request, here.yard) is None
    assert not here.running
    assert not here.yard.busy.any()


@settings(max_examples=30)
@given(
    st.lists(jobs, min_size=8, max_size=24),
    st.sampled_from(TEAMS),
    st.sampled_from(["any", "lower"]),
    st.sampled_from([0.0, 1.0]),
)
def test_preemption_settles_when_nothing_arrives_and_nothing_ends(
    world: World, stream: list, teams: tuple, reclaim: str, stop: float
) -> None:
    """No circles: with nobody exempt, plan after plan comes to rest."""
    here = world(Policy(patience=1e9, exempt=0.0, worth=0.0, restart=0.0, reclaim=reclaim, stop=1.0), teams, stop)
    for number, (gang, _) in enumerate(stream):
        here.submit(replace(gang, name=f"g{number:02d}"), 1e6)
        here.plan()
        here.now += 0.01
    for _ in range(3 * len(stream)):
        here.run_until(here.now + 1.0)
        before = len(here.preempted)
        here.plan()
    event(f"preemptions: {min(5, len(here.preempted))}")
    for _ in range(4):
        here.run_until(here.now + 1.0)
        here.plan()
    assert len(here.preempted) == before
