"""What holds for the paths of any topology, and that no topology makes the model stumble."""

from collections.abc import Callable

from hypothesis import given, settings
from hypothesis import strategies as st

from rackyard.nccl.linktypes import GPU, LOC_BW, PATH_DIS, PATH_LOC
from rackyard.nccl.paths import TARGETS, set_paths
from rackyard.nccl.paths_compute import compute, sized
from rackyard.nccl.system import build_system
from rackyard.nccl.system_print import printed
from rackyard.nccl.version import Version
from rackyard.nccl.xmlread import parse
from rackyard.nccl.xmlrefused import TopologyRefused

VERSIONS = st.sampled_from([Version(2, 30, 7), Version(2, 29, 7)])
CPUS = (
    'arch="arm64"',
    'arch="x86_64" vendor="AuthenticAMD"',
    'arch="x86_64" vendor="GenuineIntel" familyid="6" modelid="173"',
)
GENERATIONS = ("2.5", "16.0", "32.0")


@st.composite
def topologies(draw: st.DrawFn) -> str:
    """One or two hosts with GPUs and NICs at root ports and below switches, some with NVLink and C2C, some without."""
    text, rank, bus = "", 0, 1
    for host in range(draw(st.integers(1, 2))):
        for numa in range(draw(st.integers(1, 2))):
            text += f'<cpu host_hash="{host + 1:x}" numaid="{numa}" {draw(st.sampled_from(CPUS))}>\n'
            for _ in range(draw(st.integers(1, 3))):
                inside, below = draw(st.tuples(st.lists(st.sampled_from("gn"), min_size=1, max_size=3), st.booleans()))
                text += _pci(bus, "0x060400", draw(st.sampled_from(GENERATIONS))) if below else ""
                for kind in inside:
                    bus += 1
                    text += _pci(bus, "0x030200" if kind == "g" else "0x020000", draw(st.sampled_from(GENERATIONS)))
                    if kind == "g":
                        links = draw(st.sampled_from(("", '<nvlink target="s" count="18" tclass="0x068000"/>')))
                        links += draw(st.sampled_from(("", '<c2c bw="44712" count="5"/>')))
                        sm = draw(st.sampled_from((70, 80, 90, 100)))
                        text += f'<gpu dev="{rank}" sm="{sm}" rank="{rank}" gdr="1">{links}</gpu>'
                        rank += 1
                    else:
                        speed = draw(st.sampled_from((100000, 400000)))
                        gdr = draw(st.integers(0, 1))
                        text += f'<nic><net name="n{bus}" dev="{bus}" speed="{speed}" gdr="{gdr}"/></nic>'
                    text += "</pci>\n"
                bus += 1
                text += "</pci>\n" if below else ""
            text += "</cpu>\n"
    return f'<system version="1">\n{text}</system>\n'


def _pci(bus: int, kind: str, generation: str) -> str:
    return f'<pci busid="0000:{bus:02x}:00.0" class="{kind}" link_speed="{generation} GT/s PCIe" link_width="16">\n'


@settings(max_examples=60)
@given(topologies(), VERSIONS)
def test_a_best_path_leads_there_and_is_as_fast_as_its_slowest_link(text: str, version: Version) -> None:
    system = build_system(parse(text.encode(), "made", version, 2000).root, version)
    set_paths(system)
    for kind in TARGETS:
        for place, target in enumerate(system.of_type[kind]):
            for source in (number for numbers in system.of_type for number in numbers):
                path = system.path(source, kind, place)
                if path is None or path.type == PATH_DIS:
                    continue
                at = source
                for link in path.links:
                    assert system.link_from[link] == at
                    at = system.link_to[link]
                assert at == target
                # NCCL walks from the target, so the slowest link is that of the way there, not of the way back.
                back = [
                    system.find_link(system.link_to[n], system.link_from[n], system.link_type[n]) for n in path.links
                ]
                assert path.bw == min((system.link_bw[n] for n in back if n is not None), default=LOC_BW)
                assert (path.type == PATH_LOC) == all(system.link_type[n] in (0, 10) for n in path.links)


@settings(max_examples=60)
@given(topologies(), VERSIONS)
def test_what_is_kept_is_reached_without_the_network(text: str, version: Version) -> None:
    root = parse(text.encode(), "made", version, 2000).root
    try:
        computed = compute(root, version)
    except TopologyRefused:
        return
    system = computed.system
    own = computed.comm.rank in {gpu.rank for gpu in system.gpus()}
    assert own == (computed.comm.n_ranks > 0)
    assert system.count(GPU) + len(computed.removed) == computed.comm.n_ranks
    first = system.rows[GPU][system.of_type[GPU][0]] if own else None
    assert all(gpu.rank not in {gone.rank for gone in computed.removed} for gpu in system.gpus())
    assert first is None or len(first.type) == system.count(GPU)
    assert len(list(printed(sized(computed, 2).system))) > 2


SEEDS = [
    b'<system version="1">\n<cpu numaid="0" arch="arm64">\n<pci busid="0000:10:00.0" class="0x030200" link_speed="" '
    b'link_width="16">\n<gpu dev="0" sm="100" rank="0" gdr="1"><nvlink target="0000:20:00.0" count="4" '
    b'tclass="0x030200"/><c2c bw="1" count="2"/></gpu></pci>\n<pci busid="0000:20:00.0" class="0x030200" '
    b'link_speed="" link_width="16">\n<gpu dev="1" sm="100" rank="1" gdr="1"><nvlink target="0000:10:00.0" '
    b'count="4" tclass="0x030200"/></gpu></pci>\n<nic><net name="a" dev="0"/></nic></cpu>\n</system>\n',
    b'<system version="1">\n<cpu numaid="0" arch="x86_64" vendor="AuthenticAMD">\n<pci busid="0000:01:00.0" '
    b'class="0x060400" link_speed="" link_width="16" vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" '
    b'subsystem_device="0xa000">\n<pci busid="0000:02:00.0" class="0x060400" link_speed="" link_width="16" '
    b'vendor="0x1000" device="0xc010" subsystem_vendor="0x1000" subsystem_device="0xa000"><pci busid="0000:03:00.0" '
    b'class="0x030200" link_speed="" link_width="16"><gpu dev="0" sm="90" rank="0" gdr="1"><nvlink target="x" '
    b'count="18" tclass="0x068000"/></gpu></pci><pcilink target="0000:01:00.0"/></pci></pci></cpu>\n</system>\n',
]


def test_damaged_files_are_computed_or_refused(fuzz: Callable[..., None]) -> None:
    def read(data: bytes) -> None:
        for version in (Version(2, 30, 7), Version(2, 29, 7)):
            computed = compute(parse(data, "damaged", version).root, version)
            list(printed(sized(computed, 2).system))

    fuzz(read, SEEDS)
