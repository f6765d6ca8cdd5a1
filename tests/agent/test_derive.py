"""From readings to conditions and labels: every status, and that Unknown is never False."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace as struct_replace
from tests.agent.hosts import NODE, TRAY, captured, change, failed, ill, readings

from rackyard.agent.checks import REGISTERING
from rackyard.agent.conditions import CHECKS, MOST
from rackyard.agent.derive import View, derive, own_keys, wanted
from rackyard.agent.host import Memory
from rackyard.agent.reading import Reading, Trouble
from rackyard.fabric.discover import merge
from rackyard.fabric.discover.run import read
from rackyard.fabric.facts import Facts, GpuFact, Source
from rackyard.fabric.labelkeys import shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.model import Health
from rackyard.fabric.readers import READERS
from rackyard.fabric.readers.reader import Capture, head_of
from rackyard.findings import Evidence, Finding, Severity, Verdict

NVLINK, GPU, FABRIC, NIC = CHECKS


def look(facts: Facts, memory: Memory | None = None, now: float = 0.0) -> tuple[View, Memory]:
    return derive(NODE, readings(facts), memory or Memory(), now)


def told(view: View) -> dict[str, tuple[str, str]]:
    return {one.type: (one.status, one.reason) for one in view.conditions}


def message(view: View, kind: str) -> str:
    return next(one.message for one in view.conditions if one.type == kind)


def facts_with(*changes: tuple[int, dict[str, object]]) -> Facts:
    """The healthy tray, every record of some GPUs changed."""
    facts = captured()
    by_index = dict(changes)
    facts.gpus = [change(gpu, **by_index.get(gpu.index or 0, {})) for gpu in facts.gpus]
    return facts


def silent(text: str) -> Finding:
    proof = (Evidence("nvml", text),)
    return Finding("fabric/nvml-silent", Verdict.FAIL, Severity.ERROR, NODE, "GPU 1 does not answer", proof)


def without(facts: Facts, index: int) -> Facts:
    facts.gpus = [gpu for gpu in facts.gpus if gpu.index != index]
    return facts


def test_a_healthy_tray() -> None:
    view, memory = look(captured())
    assert told(view) == {
        NVLINK: ("False", "NVLinksUp"),
        GPU: ("False", "GPUsAnswer"),
        FABRIC: ("False", "FabricHealthy"),
        NIC: ("False", "NICsUp"),
    }
    assert message(view, NVLINK) == "72 NVLinks of 4 GPUs up, all of them"
    assert (view.gpus, view.nics, view.nvlinks) == ({"healthy": 4}, {"healthy": 4}, {"up": 72, "listed": 72})
    assert memory.gpus == {gpu.pci for gpu in TRAY.gpus}
    assert memory.ports == {(nic.name, 1) for nic in TRAY.nics}


@pytest.mark.parametrize(
    ("changes", "kind", "expected", "text"),
    [
        ({"links": 16}, NVLINK, ("True", "NVLinksDown"), "GPU 1 (0009:06:00.0): 16 of 18 NVLinks up"),
        ({"links": 0, "links_seen": 0}, NVLINK, ("True", "NVLinksDown"), "0 of 18"),
        ({"links": None, "links_seen": None}, NVLINK, ("Unknown", "NVLinksNotReported"), "nobody told"),
        ({"fabric_state": None}, FABRIC, ("Unknown", "FabricNotReported"), "GPU 1"),
        ({"fabric_state": "in-progress"}, FABRIC, ("Unknown", "Registering"), "in-progress"),
        ({"fabric_state": "not-supported"}, FABRIC, ("True", "NotOnFabric"), "others of the host are"),
        ({"fabric_status": "Insufficient Resources"}, FABRIC, ("True", "NotRegistered"), "Insufficient"),
        ({"health_mask": 0x1A9}, FABRIC, ("True", "FabricFault"), "degraded bandwidth"),
        ({"health_mask": 0x1A9, "health_summary": None}, FABRIC, ("True", "FabricFault"), "0x1a9"),
        ({"health_summary": "limited-capacity"}, FABRIC, ("True", "FabricFault"), "limited-capacity"),
        ({"health_mask": None, "health_summary": None}, FABRIC, ("Unknown", "HealthNotReported"), "GPU 1"),
        ({"health_mask": 0, "health_summary": "N/A"}, FABRIC, ("Unknown", "HealthNotReported"), "GPU 1"),
    ],
)
def test_one_gpu_amiss(changes: dict[str, object], kind: str, expected: tuple[str, str], text: str) -> None:
    view, _ = look(facts_with((1, changes)))
    assert told(view)[kind] == expected
    assert text in message(view, kind)
    rest = {key: status for key, (status, _) in told(view).items() if key != kind}
    assert set(rest.values()) == {"False"}


def test_the_message_names_the_evidence() -> None:
    view, _ = look(facts_with((1, {"links": 16})))
    assert "[tray.tar/rackyard-r01-t01/query-gpu.csv:3: 1, GPU-" in message(view, NVLINK)


def test_all_gpus_of_a_server_that_lists_18_and_has_16() -> None:
    facts = captured()
    facts.gpus = [change(gpu, product="NVIDIA H100 80GB HBM3", links=16, links_seen=18) for gpu in facts.gpus]
    assert told(look(facts)[0])[NVLINK] == ("True", "NVLinksDown")


def test_registering_is_waited_for_and_not_for_ever() -> None:
    facts = facts_with(*((index, {"fabric_state": "not-started"}) for index in range(4)))
    view, memory = look(facts, now=100.0)
    assert told(view)[FABRIC] == ("Unknown", "Registering")
    view, memory = look(facts, memory, 100.0 + REGISTERING - 1)
    assert told(view)[FABRIC] == ("Unknown", "Registering")
    view, memory = look(facts, memory, 100.0 + REGISTERING)
    assert told(view)[FABRIC] == ("True", "NotRegistered")
    view, memory = look(captured(), memory, 900.0)
    assert told(view)[FABRIC] == ("False", "FabricHealthy") and memory.registering is None


def test_no_gpu_on_a_fabric_is_right_for_cards_and_odd_for_a_tray() -> None:
    facts = facts_with(*((index, {"fabric_state": "not-supported"}) for index in range(4)))
    assert told(look(facts)[0])[FABRIC] == ("Unknown", "NotOnFabric")
    facts.gpus = [change(gpu, product="NVIDIA H100 PCIe", links=None, links_seen=None) for gpu in facts.gpus]
    view, _ = look(facts)
    assert told(view)[FABRIC] == ("False", "NoFabric")
    assert told(view)[NVLINK] == ("False", "NVLinksUp")


def test_a_gpu_that_does_not_answer() -> None:
    facts = without(captured(), 1)
    facts.findings.append(silent("GPU is lost"))
    view, _ = look(facts)
    assert told(view)[GPU] == ("True", "GPUSilent")
    assert "GPU is lost" in message(view, GPU)
    assert told(view)[NVLINK] == ("Unknown", "GPUsUnseen") and told(view)[FABRIC] == ("Unknown", "GPUsUnseen")


def test_a_gpu_that_may_not_be_asked_is_no_fault() -> None:
    facts = without(captured(), 1)
    facts.findings.append(silent("Insufficient Permissions"))
    assert told(look(facts)[0])[GPU] == ("Unknown", "NoPermission")


def test_a_gpu_on_the_bus_that_nvml_does_not_list() -> None:
    view, _ = look(without(captured(), 1))
    assert told(view)[GPU] == ("True", "GPUNotListed") and "0009:06:00.0" in message(view, GPU)


def off_the_bus(facts: Facts, bdf: str) -> Facts:
    facts.pci = [pci for pci in facts.devices() if pci.bdf != bdf]
    facts.pci_tables = []
    return facts


def test_a_gpu_that_left_the_bus_since_the_agent_began_and_one_that_was_never_there() -> None:
    _, memory = look(captured())
    facts = off_the_bus(without(captured(), 1), "0009:06:00.0")
    assert told(look(facts, memory)[0])[GPU] == ("True", "GPUGone")
    view, _ = look(facts)
    assert told(view)[GPU] == ("Unknown", "FewerGPUs")
    assert told(view)[NVLINK] == ("Unknown", "GPUsUnseen")
    assert "rackyard.io/degraded-gpus" not in view.labels


@pytest.mark.parametrize("trouble", list(Trouble))
def test_a_reader_that_gives_nothing_makes_unknown_what_needs_it(trouble: Trouble) -> None:
    whole = readings(captured())
    view, _ = derive(NODE, (whole[0], failed("nvml", trouble)), Memory(), 0.0)
    assert told(view) == {
        NVLINK: ("Unknown", str(trouble)),
        GPU: ("Unknown", str(trouble)),
        FABRIC: ("Unknown", str(trouble)),
        NIC: ("False", "NICsUp"),
    }
    view, _ = derive(NODE, (failed("sysfs", trouble), whole[1]), Memory(), 0.0)
    assert told(view)[NIC] == told(view)[GPU] == ("Unknown", str(trouble))
    assert "did not answer within 20 s" in message(view, NIC)


def test_nothing_at_all() -> None:
    view, memory = derive(NODE, (failed("sysfs"), failed("nvml")), Memory(), 0.0)
    assert {status for status, _ in told(view).values()} == {"Unknown"}
    assert (view.labels, memory) == ({}, Memory())
    empty = (Reading("sysfs", Facts()), failed("nvml", Trouble.NO_DRIVER))
    view, _ = derive(NODE, empty, Memory(), 0.0)
    assert told(view)[GPU] == ("Unknown", "NoGPUSeen") and told(view)[NIC] == ("Unknown", "NoNICSeen")


def test_a_silent_driver_hides_no_gpu_that_left_the_bus() -> None:
    _, memory = look(captured())
    facts = off_the_bus(captured(), "0009:06:00.0")
    view, _ = derive(NODE, (readings(facts)[0], failed("nvml", Trouble.SILENT)), memory, 0.0)
    assert told(view)[GPU] == ("True", "GPUGone")


# --- NICs -------------------------------------------------------------------------------------------------------------


def test_one_port_of_four_is_down() -> None:
    view, _ = look(captured(ill(mlx5_1=Health.DOWN)))
    assert told(view)[NIC] == ("True", "NICDown")
    assert "mlx5_1 port 1 is DOWN/Polling; 3 of 4 like it are up" in message(view, NIC)


def test_all_ports_down_are_a_fault_only_where_they_were_up() -> None:
    facts = captured(ill(**{nic.name: Health.DOWN for nic in TRAY.nics}))
    assert told(look(facts)[0])[NIC] == ("Unknown", "NICUnused")
    _, memory = look(captured())
    assert told(look(facts, memory)[0])[NIC] == ("True", "NICDown")


def test_a_port_that_no_subnet_manager_configures() -> None:
    facts = captured()
    facts.nics = [struct_replace(nic, state="INIT") if nic.name == "mlx5_2" else nic for nic in facts.nics]
    assert told(look(facts)[0])[NIC] == ("True", "NICNotConfigured")


def test_a_second_port_that_is_cabled_nowhere_is_no_fault() -> None:
    facts = captured()
    facts.nics += [struct_replace(nic, port=2, state="DOWN", phys_state="Polling") for nic in facts.nics]
    assert told(look(facts)[0])[NIC] == ("False", "NICsUp")


def test_an_hca_that_is_not_there_any_more() -> None:
    _, memory = look(captured())
    facts = captured()
    facts.nics = [nic for nic in facts.nics if nic.name != "mlx5_3"]
    view, _ = look(facts, memory)
    assert told(view)[NIC] == ("True", "NICGone") and "mlx5_3 port 1" in message(view, NIC)


# --- labels -----------------------------------------------------------------------------------------------------------


def test_labels_are_those_of_topo_label_for_what_a_host_can_know() -> None:
    facts = captured()
    view, _ = look(facts)
    whole = labels_of(merge(facts, NODE).site, shipped().written())[NODE]
    assert dict(view.labels) == {key: value for key, value in whole.items() if key in own_keys()}
    assert set(whole) - set(view.labels) == {"rackyard.io/rack"}
    assert view.labels["rackyard.io/degraded-links"] == "0"


def test_where_a_node_is_stays_while_nobody_can_say_and_how_it_is_does_not() -> None:
    before, _ = look(captured())
    blind, _ = derive(NODE, (readings(captured())[0], failed("nvml")), Memory(), 0.0)
    kept = wanted(blind, before.labels)
    assert kept == {key: value for key, value in before.labels.items() if "degraded" not in key}
    assert wanted(before, {"rackyard.io/domain": "old"}) == dict(before.labels)
    assert "rackyard.io/degraded-gpus" not in blind.labels


# --- recorded hosts, and anything -------------------------------------------------------------------------------------


@pytest.mark.corpus
def test_the_infiniband_folder_of_a_public_h100(corpus: Path) -> None:
    file = corpus / "topology/sysfs/gpud-sys-class-infiniband-h100.tar.gz"
    facts, _ = read([Capture(file.name, file.read_bytes(), NODE)], READERS)
    view, _ = derive(NODE, (Reading("sysfs", facts), failed("nvml", Trouble.SILENT)), Memory(), 0.0)
    assert told(view)[NIC] == ("False", "NICsUp")
    assert message(view, NIC) == "8 of 8 ports up, all that are used"  # and not the slower HCA for storage
    by_hand = struct_replace(facts.nics[3], state="DOWN", phys_state="Polling")
    facts.nics[3] = by_hand
    view, _ = derive(NODE, (Reading("sysfs", facts), failed("nvml", Trouble.SILENT)), Memory(), 0.0)
    assert told(view)[NIC] == ("True", "NICDown") and by_hand.name in message(view, NIC)


@pytest.mark.corpus
def test_a_public_nvlink_listing_with_links_down(corpus: Path) -> None:
    file = corpus / "host_perf/samples/azdiag_nvlink.bad.out"
    capture = Capture(file.name, file.read_bytes(), NODE)
    (reader,) = [reader for reader in READERS if reader.knows(head_of(capture), capture.file)]
    view, _ = derive(NODE, (Reading("sysfs", Facts()), Reading("nvml", reader.read(capture))), Memory(), 0.0)
    assert told(view)[NVLINK][0] == "True"
    assert file.name in message(view, NVLINK)


GPUS = st.builds(
    GpuFact,
    node=st.just(NODE),
    source=st.just(Source("nvml", text="GPU")),
    index=st.integers(0, 3),
    pci=st.sampled_from([gpu.pci for gpu in TRAY.gpus]),
    product=st.sampled_from([None, "NVIDIA GB300", "NVIDIA H100 PCIe", "NVIDIA H100 80GB HBM3", "x"]),
    links=st.none() | st.integers(0, 18),
    links_seen=st.none() | st.integers(0, 18),
    fabric_state=st.sampled_from([None, "completed", "in-progress", "not-started", "not-supported"]),
    fabric_status=st.sampled_from([None, "Success", "Insufficient Resources"]),
    health_mask=st.none() | st.integers(0, 0xFFFF),
    health_summary=st.sampled_from([None, "healthy", "unhealthy", "limited-capacity"]),
)


def _drop(facts: Facts, reader: bool) -> tuple[Reading, ...]:
    whole = readings(facts)
    return (whole[0], failed("nvml")) if reader else whole


@given(st.lists(GPUS, max_size=6), st.booleans(), st.floats(0, 1e6))
def test_false_is_said_only_of_what_was_told(gpus: list[GpuFact], drop: bool, now: float) -> None:
    facts = captured()
    facts.gpus = gpus
    view, memory = derive(NODE, _drop(facts, drop), Memory(), now)
    again, _ = derive(NODE, _drop(facts, drop), memory, now)
    assert again.conditions == view.conditions
    said = told(view)
    assert len(said) == len(CHECKS)
    assert all(one.reason.isalnum() and one.message and len(one.message) <= MOST for one in view.conditions)
    if drop or not gpus:
        assert said[NVLINK][0] != "False" and said[FABRIC][0] != "False" and said[GPU][0] != "False"
    if said[NVLINK][0] == "False":
        assert all(gpu.links is not None or "PCIe" in (gpu.product or "") for gpu in gpus)
    if said[FABRIC][0] == "False":
        assert all(gpu.fabric_state in ("completed", "not-supported") for gpu in gpus)
