"""nvidia-smi nvlink -s."""

from pathlib import Path

import pytest
from tests.conftest import Fuzz

from rackyard.fabric.readers import smi_nvlink
from rackyard.fabric.readers.reader import Capture, head_of

UP = "".join(f"\t Link {link}: 53.125 GB/s\n" for link in range(18))
TEXT = f"GPU 0: NVIDIA GB300 (UUID: GPU-0000)\n{UP}GPU 1: NVIDIA GB300 (UUID: GPU-1111)\n" + UP.replace(
    "Link 7: 53.125 GB/s", "Link 7: <inactive>"
).replace("Link 9: 53.125 GB/s", "Link 9: Sleep")


def read(text: str) -> list[tuple[object, ...]]:
    facts = smi_nvlink.read(Capture("nvlink.txt", text.encode(), "n1"))
    return [(gpu.index, gpu.uuid, gpu.product, gpu.links, gpu.links_seen, gpu.link_gbps) for gpu in facts.gpus]


def test_links_up_and_seen() -> None:
    assert read(TEXT) == [
        (0, "GPU-0000", "NVIDIA GB300", 18, 18, 53.125),
        (1, "GPU-1111", "NVIDIA GB300", 16, 18, 53.125),
    ]


def test_the_first_link_that_is_not_up_is_the_proof() -> None:
    healthy, broken = smi_nvlink.read(Capture("nvlink.txt", TEXT.encode(), "n1")).gpus
    assert (healthy.source.line, healthy.source.text) == (1, "GPU 0: NVIDIA GB300 (UUID: GPU-0000)")
    assert (broken.source.line, broken.source.text) == (28, "Link 7: <inactive>")


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA A30 (UUID: GPU-0)\nNVML: Unable to retrieve NVLink information as all links are inActive\n",
        "GPU 0: NVIDIA A30 (UUID: GPU-0) NVML: Unable to retrieve Nvlink information as all links are inActive\n",
    ],
)
def test_no_link_is_up(text: str) -> None:
    assert smi_nvlink.READER.knows(text, "")
    assert read(text) == [(0, "GPU-0", "NVIDIA A30", 0, None, None)]


def test_a_gpu_of_which_nothing_is_said() -> None:
    assert read("GPU 0: NVIDIA L40S (UUID: GPU-0)\n") == [(0, "GPU-0", "NVIDIA L40S", None, None, None)]


def test_old_form_without_uuid_zero_rate_and_mixed_rates() -> None:
    text = (
        "$ nvidia-smi nvlink -s\nGPU 0: Tesla V100\n\t Link 0: 25.781 GB/s\n\t Link 1: 0.000 GB/s\n\t Link 2: 20 GB/s"
    )
    assert read(text) == [(0, None, "Tesla V100", 2, 3, 20.0)]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "GPU 0: NVIDIA GB300 (UUID: GPU-0)\n",
        "GPU 0: NVIDIA GB300 (UUID: GPU-0)\n\t Link 0: Replay Errors: 0\n",
        "GPU 0: NVIDIA GB300 (UUID: GPU-0)\n\t Link 0, P2P is supported: true\n",
    ],
)
def test_other_outputs_are_not_taken(text: str) -> None:
    assert not smi_nvlink.READER.knows(text, "")


def test_fuzz(fuzz: Fuzz) -> None:
    fuzz(lambda data: smi_nvlink.read(Capture("f", data)), [TEXT.encode(), b"GPU 0: A (UUID: GPU-1)\n Link 0: 25 GB/s"])


@pytest.mark.corpus
def test_a100_server(corpus: Path) -> None:
    capture = Capture("a100", (corpus / "topology/topo_m/gpud-nvlink-status-a100.txt").read_bytes(), "a100")
    assert smi_nvlink.READER.knows(head_of(capture), capture.file)
    gpus = smi_nvlink.read(capture).gpus
    assert [(gpu.index, gpu.links, gpu.links_seen, gpu.link_gbps) for gpu in gpus] == [
        (index, 12, 12, 25.0) for index in range(8)
    ]
    assert (gpus[7].uuid, gpus[7].source.line) == ("GPU-754035b4-4708-efcd-b261-623aea38bcad", 92)
