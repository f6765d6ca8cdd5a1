"""The rules of Volcano and Kueue, as the placement replay restates them, against the schedulers themselves.

Seeds are the first thirty numbers from 1000; `benchmarks/rules.py` asks a larger sample, and docs/replay.md says what
agrees and what can't. Both schedulers must admit what the restated rule admits. Kueue draws no lots: it has to choose
the same nodes. Volcano does, among what is alike to it: its outcome must be the rule's in one order of the domains.
"""

from types import ModuleType

import pytest
from tests.testbed.conftest import Needs

from testbed import cluster
from testbed.rules import draw, kueue, volcano
from testbed.rules.compare import Verdict, verdicts

pytestmark = [pytest.mark.kube, pytest.mark.timeout(600)]

SEEDS = range(1000, 1030)


def asked(name: str, scheduler: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    cases = draw(name, SEEDS)
    folder = tmp_path_factory.mktemp(name) / "cluster"
    with cluster(folder, parts=("kwok", name), options=scheduler.OPTIONS) as bed:
        return verdicts(cases, scheduler.ask_all(bed, cases))


@pytest.fixture(scope="module")
def of_volcano(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    needs_testbed(("kwok", "volcano"))
    return asked("volcano", volcano, tmp_path_factory)


@pytest.fixture(scope="module")
def of_kueue(needs_testbed: Needs, tmp_path_factory: pytest.TempPathFactory) -> list[Verdict]:
    needs_testbed(("kwok", "kueue"))
    return asked("kueue", kueue, tmp_path_factory)


def test_volcano_admits_what_the_rule_admits(of_volcano: list[Verdict]) -> None:
    assert len(of_volcano) >= 60
    assert any(each.real is None for each in of_volcano) and any(each.placed for each in of_volcano)
    assert [each for each in of_volcano if not each.admitted] == []


def test_volcano_spans_the_domains_of_the_rule_in_one_order_of_what_is_alike(of_volcano: list[Verdict]) -> None:
    assert [each for each in of_volcano if not each.possible] == []


@pytest.mark.parametrize("mode", ["domain", "partitions"])
def test_volcano_in_hard_mode_on_domains_spans_as_many(of_volcano: list[Verdict], mode: str) -> None:
    found = [each for each in of_volcano if each.ask.mode == mode]
    spans = [(each.real, each.ours) for each in found if each.real is not None and each.ours is not None]
    assert spans
    assert all((len(real.domains), real.blocks) == (len(ours.domains), ours.blocks) for real, ours in spans)


def test_kueue_admits_what_the_rule_admits_and_takes_the_same_nodes(of_kueue: list[Verdict]) -> None:
    assert len(of_kueue) >= 60
    assert any(each.real is None for each in of_kueue) and any(each.placed for each in of_kueue)
    assert [each for each in of_kueue if each.real != each.ours] == []
