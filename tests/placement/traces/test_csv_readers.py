"""Traces in CSV, by small examples: what becomes a job, what is left out and why, what is malformed and where."""

from collections.abc import Callable

import pytest

from rackyard.errors import RackyardError, SpecError, UsageError
from rackyard.placement.traces import TraceJob, known, read_trace
from rackyard.placement.traces import table as tables

PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
pod-1,12000,16384,1,1000,,LS,Running,100,160,110
pod-2,6000,12288,1,460,V100M16|V100M32,BE,Running,90,100,90
pod-3,20000,65536,0,0,,LS,Running,5,100,7
pod-4,11908,47104,8,1000,,BE,Pending,120,130,
pod-5,11908,47104,8,1000,nan,Guaranteed,Succeeded,130,130,130
pod-1,12000,16384,1,1000,,LS,Running,200,260,210
"""

INSTANCES = """\
instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,\
memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time
instance_1,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,
instance_2,CN,app_0,48,48,0,0,25,25,240.0,240.0,680.0,800.0,-1,10.0,10.0,1000.0
instance_3,HN,app_1,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,50.0,60.0,
instance_4,HN,app_1,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,400.0
instance_5,HN,app_2,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,70.0,80.0,180.0
instance_6,HN,app_2,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,1000.0,1000.0,
"""

SPOT = """\
job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type
1,57,A100-SXM4-80GB,15,1,94,30,71718,Spot
2,13,A10,20,0.5,2,0,2764799,HP
3,13,A10,20,0,2,0,100,HP
"""

HELIOS = """\
job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue
11,uA,vcX,16,64,2,COMPLETED,2020-06-09 18:41:00,2020-06-09 18:42:00,2020-06-09 18:52:00,600,60
10,uA,vcX,0,4,1,COMPLETED,2020-06-09 18:40:00,2020-06-09 18:40:00,2020-06-09 18:52:00,720,0
12,uB,vcY,3,4,2,FAILED,2020-06-09 18:43:00,2020-06-09 18:43:00,2020-06-09 18:43:30,30,0
13,uB,vcY,3,4,2,CANCELLED,2020-06-09 18:43:00,,2020-06-09 18:43:30,,0
14,uB,vcY,1,4,1,RUNNING,2020-06-09 18:43:00,2020-06-09 18:43:30,None,,0
"""

ACME = """\
job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time
dlc1,u1,8,64.0,960,Other,FAILED,2023-05-17 11:00:58+00:00,2023-05-17 11:01:08+00:00,2023-05-17 11:01:16+00:00,18,10,1152
dlc2,u2,1,8,120,Other,FAILED,2023-05-17 19:00:58+08:00,2023-05-17 19:01:08+08:00,2023-05-17 20:01:08+08:00,3610,10,1
"""

TIRESIAS = """\
job_id,num_gpu,submit_time,iterations,model_name,duration,interval
1,8,30,133,vgg11,147,23
0,1,0,606,vgg19,164,30
"""


def test_pods_of_2023() -> None:
    trace = read_trace(PODS, "pods.csv")
    assert trace.jobs == (
        TraceJob("pod-2", 90.0, 1, 10.0, kind="V100M16|V100M32"),
        TraceJob("pod-1", 100.0, 1, 50.0, priority=1),
    )
    assert [(row.file, row.line, row.why) for row in trace.dropped] == [
        ("pods.csv", 4, "no GPU"),
        ("pods.csv", 5, "never scheduled"),
        ("pods.csv", 6, "no running time"),
        ("pods.csv", 7, "a job of this name came before"),
    ]
    assert "a share of a GPU rounded up to one GPU: 1 row" in trace.notes


def test_instances_of_2025_are_cut_at_the_edges_of_the_trace() -> None:
    trace = read_trace(INSTANCES, "dlrm.csv")
    assert trace.jobs == (
        TraceJob("instance_4", 0.0, 1, 400.0, team="app_1"),
        TraceJob("instance_1", 0.0, 1, 1000.0, team="app_0"),
        TraceJob("instance_3", 50.0, 1, 940.0, team="app_1"),
        TraceJob("instance_5", 70.0, 1, 100.0, team="app_2"),
    )
    assert trace.reasons() == {"no GPU": 1, "came at the very end of the trace": 1}
    assert "older than the trace, taken to come at its second 0: 2 rows" in trace.notes


def test_spot_jobs_of_2026() -> None:
    trace = read_trace(SPOT, "job_info_df.csv")
    assert trace.jobs == (
        TraceJob("2", 0.0, 2, 2764799.0, team="13", priority=1, kind="A10", gpus_per_node=1),
        TraceJob("1", 30.0, 94, 71718.0, team="57", kind="A100-SXM4-80GB", gpus_per_node=1),
    )
    assert trace.reasons() == {"no GPU": 1}
    assert trace.notes[-1] == "a share of a GPU rounded up to one GPU: 1 row"


def test_helios_starts_at_its_first_submission_even_of_a_job_without_gpus() -> None:
    trace = read_trace(HELIOS, "cluster_log.csv")
    assert trace.jobs == (
        TraceJob("11", 60.0, 16, 600.0, team="vcX", gpus_per_node=8),
        TraceJob("12", 180.0, 3, 30.0, team="vcY"),
    )
    assert trace.source.startswith("Helios")
    assert [(row.line, row.why.split(":")[0]) for row in trace.dropped] == [
        (3, "no GPU"),
        (5, "never scheduled"),
        (6, "no end"),
    ]


def test_acme_has_zones_and_its_run_time_is_end_less_start() -> None:
    trace = read_trace(ACME, "trace_kalos.csv")
    assert trace.jobs == (
        TraceJob("dlc1", 0.0, 64, 8.0, team="u1", gpus_per_node=8),
        TraceJob("dlc2", 0.0, 8, 3600.0, team="u2", gpus_per_node=8),
    )
    assert trace.source.startswith("Acme")


def test_tiresias() -> None:
    trace = read_trace(TIRESIAS, "60_job.csv")
    assert trace.jobs == (TraceJob("0", 0.0, 1, 164.0), TraceJob("1", 30.0, 8, 147.0))


def test_columns_may_stand_in_any_order_with_others_between_and_windows_line_ends() -> None:
    text = "\ufeffextra, duration ,submit_time,num_gpu,model_name,iterations,job_id\r\n\r\n-,5,1,2,m,9,a\r\n"
    assert read_trace(text, "t.csv").jobs == (TraceJob("a", 1.0, 2, 5.0),)


@pytest.mark.parametrize(
    ("text", "what", "where"),
    [
        (TIRESIAS.replace("1,8,30", "1,eight,30"), "num_gpu is 'eight'", "t.csv:2:3"),
        (TIRESIAS.replace("1,8,30", "1,8.5,30"), "num_gpu is '8.5'", "t.csv:2:3"),
        (TIRESIAS.replace("1,8,30", "1,99999999999,30"), "num_gpu is '99999999999'", "t.csv:2:3"),
        (TIRESIAS.replace("1,8,30", "1,8,-30"), "submit_time is '-30'", "t.csv:2:5"),
        (TIRESIAS.replace("606", '"606"').replace("164", "1_6"), "duration is '1_6'", "t.csv:3"),
        (TIRESIAS.replace(",147,23", ",147"), "a row does not fit the header", "t.csv:2"),
        (TIRESIAS.replace("vgg11", '"vgg11'), "this line can't be read as CSV", "t.csv:3"),
        (TIRESIAS.replace("interval", "duration"), "the column 'duration' stands twice in the header", "t.csv:1"),
        (HELIOS.replace("2020-06-09 18:52:00", "2020-06-31 18:52:00", 1), "end_time is '2020-06-31", "t.csv:2"),
        (PODS.replace(",100,160,110", ",100,,110"), "deletion_time is ''", "t.csv:2:42"),
    ],
)
def test_a_malformed_row_is_told_with_its_place(text: str, what: str, where: str) -> None:
    with pytest.raises(SpecError) as error:
        read_trace(text, "t.csv")
    assert error.value.what.startswith(what)
    assert str(error.value.where).startswith(where) and (error.value.why or error.value.fix)


@pytest.mark.parametrize(
    ("text", "what", "tells"),
    [
        ("", "the trace is empty", "Tiresias"),
        ("\n \n", "the trace is empty", "Tiresias"),
        ("hello\n", "no job trace that is known here", "begins with 'hello'"),
        ("a\tb\tc\n", "no job trace that is known here", "seven fields"),
        ("job_id,num_gpu,submit_time,iterations,model_name\n", "no job trace", "lacks duration"),
        ("time,submit_job_all,submit_gpu_job,start_gpu_job\n", "this is a count of Helios jobs", "cluster_log.csv"),
        ("id,job_num,gpu_job_num,avg_gpu_num\n", "this is Acme's averages", "trace_seren.csv"),
        ("date,vcA,total\n", "this is the GPUs of Helios by day", "cluster_log.csv"),
        ("sn,cpu_milli,memory_mib,gpu,model\n", "this is Alibaba's list of nodes of 2023", "openb_pod_list"),
        ("gpu_model,gpu_capacity_num,cpu_num,node_name\n", "this is Alibaba's list of nodes of 2026", "job_info_df"),
    ],
)
def test_what_lists_no_jobs_is_refused_and_says_what_to_give(text: str, what: str, tells: str) -> None:
    with pytest.raises(UsageError) as error:
        read_trace(text, "t.csv")
    assert error.value.what.startswith(what) and tells in str(error.value)
    assert "t.csv:1" in str(error.value)


def test_a_trace_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_CHARS", 100)
    with pytest.raises(UsageError, match="too large"):
        read_trace(PODS, "t.csv")


def test_a_trace_of_too_many_rows_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "MAX_ROWS", 2)
    assert len(read_trace(TIRESIAS, "t.csv").jobs) == 2
    with pytest.raises(UsageError, match="too many rows"):
        read_trace(PODS, "t.csv")


def test_every_known_trace_is_named() -> None:
    assert len(known()) == 7


def test_fuzz(fuzz: Callable[..., None]) -> None:
    seeds = [text.encode() for text in (PODS, INSTANCES, SPOT, HELIOS, ACME, TIRESIAS)]
    fuzz(lambda data: read_trace(data.decode("utf-8", "replace"), "fuzz"), seeds)


def test_damage_inside_the_rows_never_gives_a_job_that_means_nothing(fuzz: Callable[..., None]) -> None:
    """Damage that spares the header, so that it reaches the cells."""

    def read(data: bytes) -> None:
        text = HELIOS.split("\n", 1)[0] + "\n" + data.decode("utf-8", "replace")
        try:
            trace = read_trace(text, "fuzz")
        except RackyardError:
            return
        assert all(job.gpus > 0 and job.duration > 0 and job.submit >= 0 for job in trace.jobs)
        assert len({job.name for job in trace.jobs}) == len(trace.jobs)

    fuzz(read, [HELIOS.split("\n", 1)[1].encode()])
