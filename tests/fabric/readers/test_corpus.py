"""Every real input is read by exactly the reader that is for it, or refused with the line; none crashes."""

from pathlib import Path

import pytest

from rackyard.cli.captures import readers
from rackyard.errors import RackyardError, Where
from rackyard.fabric.readers.bundle import is_bundle, unpack
from rackyard.fabric.readers.reader import Capture, head_of

pytestmark = pytest.mark.corpus

NOT_CAPTURES = {
    "SOURCES.md",
    "lambda_gb300_n18.json",  # descriptions of systems that MLPerf submitters wrote
    "wiwynn_gb200_nvl72.json",
    "nvml-mock-gb300.yaml",  # the configuration of a simulator of NVML
    "mnnvl_graph_1tray_04.xml",  # a graph that NCCL searched, for `rackyard nccl topo graphs`
}
REFUSED = {
    "topograph-example-bad.out": 10,  # an HCA without a single link
    "topo_8p1h_4.xml": 5,  # RCCL's version 2 of the format
    "topo_8p_940.xml": 1,
}


def test_every_file(corpus: Path) -> None:
    files = [file for file in (corpus / "topology").rglob("*") if file.is_file() and "nccl_oracle" not in file.parts]
    assert len(files) > 25
    for file in files:
        whole = Capture(str(file), file.read_bytes(), "n")
        for capture in unpack(whole) if is_bundle(whole.data) else [whole]:
            knowing = [reader for reader in readers() if reader.knows(head_of(capture), capture.file)]
            if file.name in NOT_CAPTURES:
                assert knowing == [], file
                continue
            assert len(knowing) == 1, (file, [reader.name for reader in knowing])
            try:
                facts = knowing[0].read(capture)
            except RackyardError as error:
                assert isinstance(error.where, Where), file
                assert REFUSED.get(file.name) == error.where.line, file
            else:
                assert file.name not in REFUSED
                assert facts.hosts or facts.gpus or facts.nics or facts.cables or facts.pci or facts.cpus, file
