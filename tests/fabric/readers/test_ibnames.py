"""What node descriptions and rates say."""

import pytest

from rackyard.fabric.readers.ibnames import gbps_of, host_and_device, speed_of, switch_name, switch_names


@pytest.mark.parametrize(
    ("description", "host", "device"),
    [
        ("a01-c05 mlx5_5", "a01-c05", "mlx5_5"),
        ("a01-c05.example.org HCA-1", "a01-c05.example.org", "HCA-1"),
        ("node_7 hca_0", "node_7", "hca_0"),
        ("'node7' mlx5_0", "node7", "mlx5_0"),
        ("node7 ibp26s0", "node7", "ibp26s0"),
        ("node7 mlx5_0  ", "node7", "mlx5_0"),
        ("node7", "node7", ""),
        ("localhost HCA-5", "", "HCA-5"),
        ("localhost", "", ""),
        ("MT4129 ConnectX7   Mellanox Technologies", "", ""),
        ("MT25408 ConnectX Mellanox Technologies", "", ""),
        ("ConnectX-6", "", ""),
        ("some words about it", "", ""),
        ("", "", ""),
    ],
)
def test_hosts(description: str, host: str, device: str) -> None:
    assert host_and_device(description) == (host, device)


@pytest.mark.parametrize(
    ("description", "name"),
    [
        ("MF0;leaf-1:MQM9700/U1", ("leaf-1", "MQM9700", "/U1")),
        ("MF0;core:CS7500/L05/U1", ("core", "CS7500", "/L05/U1")),
        ("MF0;leaf-1:MQM9700", ("leaf-1", "MQM9700", "")),
        ("SwitchX -  Mellanox Technologies", ("", "", "")),
        ("Voltaire 4036 # core", ("Voltaire 4036 # core", "", "")),
    ],
)
def test_switches(description: str, name: tuple[str, str, str]) -> None:
    assert switch_name(description) == name


def test_only_chips_of_one_name_carry_their_chip() -> None:
    names = switch_names({"1": "MF0;a:Q3400/U1", "2": "MF0;a:Q3400/U2", "3": "MF0;b:Q3400/U1", "4": "", "5": ""})
    assert [names[key].name for key in "12345"] == ["a/U1", "a/U2", "b", "", ""]


def test_switches_of_one_name_carry_their_guid() -> None:
    names = switch_names({"S-0a": "sw", "S-0b": "sw", "0c": "MF0;a:Q3400/U1", "0d": "MF0;a:Q3400/U1", "0e": "b"})
    assert [name.name for name in names.values()] == ["sw-0a", "sw-0b", "a/U1-0c", "a/U1-0d", "b"]


def test_rates() -> None:
    speeds = ("SDR", "DDR", "QDR", "FDR10", "FDR", "EDR", "HDR", "NDR", "XDR")
    assert [gbps_of(4, speed) for speed in speeds] == [10, 20, 40, 40, 56, 100, 200, 400, 800]
    assert (gbps_of(1, "NDR"), gbps_of(None, "NDR"), gbps_of(4, "???"), gbps_of(4, None)) == (100, None, None, None)
    assert [speed_of(text) for text in ("106.25", "25.78", "212.5", "7", "", "1.2.3")] == [
        "NDR",
        "EDR",
        "XDR",
        *[None] * 3,
    ]
