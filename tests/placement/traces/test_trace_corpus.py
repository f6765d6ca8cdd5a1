"""The public traces, each counted here a second time by the csv module alone."""

import csv
from collections import Counter
from pathlib import Path

import pytest

from rackyard.errors import UsageError
from rackyard.placement.traces import fit, load_of, read_trace, stretch
from rackyard.placement.traces.gavel import STEPS_PER_SECOND

pytestmark = pytest.mark.corpus

NO_JOBS = {
    "SOURCES.md": "no job trace that is known here",
    "acme_cluster_summary.csv": "this is Acme's averages",
    "alibaba_lingjun2023_topo.csv": "this is the switches above the hosts of Lingjun",
    "alibaba_v2023_openb_node_list_gpu_node.csv": "this is Alibaba's list of nodes of 2023",
    "alibaba_v2026_spot_node_info.csv": "this is Alibaba's list of nodes of 2026",
    "helios_venus_cluster_throughput_first8000.csv": "this is a count of Helios jobs",
}


def test_every_file_is_read_or_refused_with_what_it_is(corpus: Path) -> None:
    files = [file for file in (corpus / "scheduling").iterdir() if file.is_file()]
    assert len(files) >= 9
    for file in files:
        text = file.read_text()
        if file.name in NO_JOBS:
            with pytest.raises(UsageError, match=NO_JOBS[file.name]):
                read_trace(text, file.name)
        else:
            trace = read_trace(text, file.name)
            assert trace.jobs and len(trace.jobs) + len(trace.dropped) == len(text.splitlines()) - ("csv" in file.name)


def test_alibaba_2023(corpus: Path) -> None:
    file = corpus / "scheduling" / "alibaba_v2023_openb_pod_list_default.csv"
    with file.open(newline="") as lines:
        pods = list(csv.DictReader(lines))
    trace = read_trace(file.read_text(), file.name)
    gpu = [pod for pod in pods if pod["num_gpu"] != "0"]
    ran = [pod for pod in gpu if pod["scheduled_time"]]
    assert (len(pods), len(gpu), len(ran)) == (8152, 7064, 6203)
    assert trace.reasons() == {"no GPU": len(pods) - len(gpu), "never scheduled": len(gpu) - len(ran)}
    assert {(job.name, job.submit, job.gpus, job.duration) for job in trace.jobs} == {
        (
            pod["name"],
            float(pod["creation_time"]),
            int(pod["num_gpu"]),
            float(int(pod["deletion_time"]) - int(pod["scheduled_time"])),
        )
        for pod in ran
    }
    shares = sum(pod["gpu_milli"] != "1000" for pod in ran)
    assert trace.notes[-1] == f"a share of a GPU rounded up to one GPU: {shares:,} rows"


def test_philly_through_gavel_comes_back_to_whole_seconds(corpus: Path) -> None:
    file = corpus / "scheduling" / "gavel_philly_seed0_vc_6214e9.trace"
    with file.open(newline="") as lines:
        rows = list(csv.reader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    trace = read_trace(file.read_text(), file.name)
    assert len(trace.jobs) == len(rows) == 2000 and not trace.dropped
    assert Counter(job.gpus for job in trace.jobs) == Counter(int(row[6]) for row in rows)
    by_name = {job.name: job for job in trace.jobs}
    for number, row in enumerate(rows, 1):
        job, rate = by_name[f"job-{number}"], STEPS_PER_SECOND[row[0]]
        assert job.submit == float(row[5]) and job.duration == int(job.duration)
        # The way gavel went: the whole second that was found gives the steps of the file, before they were cut.
        assert -0.005 < job.duration * rate - int(row[4]) < 1.005
    assert sum(job.gpus > 1 for job in trace.jobs) == 72
    assert min(job.duration for job in trace.jobs) == 1200.0


def test_tiresias(corpus: Path) -> None:
    file = corpus / "scheduling" / "tiresias_60_job.csv"
    with file.open(newline="") as lines:
        rows = list(csv.DictReader(lines))
    trace = read_trace(file.read_text(), file.name)
    assert [(job.name, job.submit, job.gpus, job.duration) for job in trace.jobs] == [
        (row["job_id"], float(row["submit_time"]), int(row["num_gpu"]), float(row["duration"])) for row in rows
    ]


def test_a_public_trace_fits_a_small_site_at_a_wanted_load(corpus: Path) -> None:
    file = corpus / "scheduling" / "gavel_philly_seed0_vc_6214e9.trace"
    trace = stretch(fit(read_trace(file.read_text(), file.name), 4, 72), 72, 0.8)
    assert load_of(trace, 72) == pytest.approx(0.8)
    assert {job.gpus for job in trace.jobs} == {1, 2, 4, 8}
