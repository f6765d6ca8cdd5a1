"""A job on a site whose audit finds an error does not start unless told to, and every node gets its NCCL file."""

from pathlib import Path

from yard import finish, open_gate, toy, yard

from rackyard.controller.home import Home
from rackyard.controller.submit import submit
from rackyard.jobs.state import JobState, Phase
from rackyard.jobs.why import why
from rackyard.launch import refusals
from rackyard.nccl import Version, lint

CROSSED = """
name: crossed
simulated: true
racks:
  r01: {switch_trays: 9}
nodes:
  r01-t01: {shape: GB300, rack: r01, slot: 1, leaves: [leaf-0-r01, leaf-2-r01, leaf-1-r01, leaf-3-r01]}
  r01-t02: {shape: GB300, rack: r01, slot: 2}
  r01-t03: {shape: GB300, rack: r01, slot: 3}
"""


def again(home: Home, job: str, accept: tuple[str, ...]) -> JobState:
    """Submit the same job with rules accepted, and finish it."""
    before = home.store.state(job)
    spec = {**before.spec, "run": "true"}
    return finish(home, submit(home.store, spec, Path(before.workdir), home.site().digest(), accept=accept))


def test_a_job_does_not_start_on_crossed_rails(tmp_path: Path) -> None:
    with yard(tmp_path, CROSSED) as home:
        job = toy(home, gpus=12, text="recover: {spares: 0}\n")
        state = finish(home, job)
        assert state.phase is Phase.FAILED
        assert state.attempts == ()
        answer = why(state)
        assert "r01-t01" in answer.reason and "rails crossed" in answer.reason
        assert "--accept fabric/rail-crossed" in answer.next_step
        accepted = again(home, job, ("fabric/rail-crossed",))
        assert accepted.attempts and "audit" not in why(accepted).reason
        other = again(home, job, ("fabric/uplink-missing",))
        assert other.attempts == ()


def test_what_is_wrong_elsewhere_does_not_matter(tmp_path: Path) -> None:
    from rackyard.controller.nccl import audit

    with yard(tmp_path, CROSSED) as home:
        site = home.site()
        errors = audit(site)
        assert [one.rule for one in refusals(errors, site, ["r01-t01"], ())] == ["fabric/rail-crossed"]
        assert refusals(errors, site, ["r01-t02", "r01-t03"], ()) == ()


def test_each_node_gets_its_topology_file(tmp_path: Path) -> None:
    with yard(tmp_path) as home:
        job = toy(home, gpus=8)
        open_gate(home)
        state = finish(home, job)
        assert state.phase is Phase.SUCCEEDED
        files = sorted((home.job_dir(job) / "nccl").iterdir())
        assert len(files) == 2
        for file in files:
            assert home.site().has_node(file.stem)
            findings = lint(file.read_bytes(), file.name, Version.parse("2.30.7"))
            assert not [one for one in findings if one.verdict.value == "FAIL"]
