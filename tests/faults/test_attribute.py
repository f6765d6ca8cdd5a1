"""Root or echo."""

import pytest

from rackyard.faults import AttemptView, Cause, RankView, attribute
from rackyard.faults.attribute import ROOT_WAIT, SETTLE, is_echo, last_error
from rackyard.faults.observations import FabricDown, NodeLost, RankExited

GLOO = (
    "Traceback (most recent call last):\n  ...\nRuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:553] "
    "Connection closed by peer [127.0.0.1]:12345\n"
)
USER = "Traceback (most recent call last):\n  File 'train.py', line 3\nValueError: bad batch 17\n"


def ended(rank: int, node: str, *, code: int | None = None, signal: int | None = None, tail: str = "") -> RankExited:
    return RankExited(
        job="j", attempt=1, rank=rank, node=node, code=code, signal=signal, tail=tail, wall=0.0, mono=10.0 + rank / 100
    )


def view(
    exits: tuple[RankExited, ...] = (),
    nodes: tuple[NodeLost, ...] = (),
    fabric: tuple[FabricDown, ...] = (),
    *,
    steps: tuple[int, ...] = (5, 5, 5, 5),
    moved: float = 10.0,
) -> AttemptView:
    by_rank = {exit_.rank: exit_ for exit_ in exits}
    ranks = tuple(RankView(rank, f"r01-t0{rank // 2 + 1}", step, by_rank.get(rank)) for rank, step in enumerate(steps))
    symptom = 10.0 if exits or nodes or fabric else None
    return AttemptView(ranks, nodes, fabric, symptom, moved, True, 60.0)


def test_nothing_wrong_is_no_fault() -> None:
    assert attribute(view(), 20.0) is None


def test_a_lost_tray_is_the_root_and_its_peers_are_echoes() -> None:
    lost = NodeLost(node="r01-t02", why="agent ended", wall=0.0, mono=10.5)
    fault = attribute(
        view((ended(0, "r01-t01", code=1, tail=GLOO), ended(1, "r01-t01", code=1, tail=GLOO)), (lost,)), 11
    )
    assert fault is not None
    assert (fault.cause, fault.nodes) == (Cause.TRAY, ("r01-t02",))
    assert len(fault.echoes) == 2


def test_a_dead_domain_outranks_a_lost_tray() -> None:
    down = FabricDown(rack="r01", part="nvlink", text="Xid 149", simulated=True, wall=0.0, mono=10.1)
    lost = NodeLost(node="r01-t02", why="agent ended", wall=0.0, mono=10.0)
    fault = attribute(view(nodes=(lost,), fabric=(down,)), 10.2)
    assert fault is not None
    assert (fault.cause, fault.racks) == (Cause.RACK_NVLINK, ("r01",))


def test_a_switch_tray_is_named() -> None:
    down = FabricDown(rack="r01", part="r01-s3", text="Xid 149", simulated=True, wall=0.0, mono=10.1)
    fault = attribute(view(fabric=(down,)), 10.2)
    assert fault is not None
    assert fault.cause is Cause.SWITCH_TRAY
    assert "r01-s3" in fault.summary


def test_only_echoes_wait_for_the_root_and_then_say_that_it_is_unknown() -> None:
    seen = view((ended(0, "r01-t01", code=1, tail=GLOO),))
    assert attribute(seen, 10.0 + SETTLE) is None
    assert attribute(seen, 10.0 + ROOT_WAIT - 0.1) is None
    fault = attribute(seen, 10.0 + ROOT_WAIT)
    assert fault is not None
    assert fault.cause is Cause.UNKNOWN


def test_a_signal_is_the_root_among_echoes() -> None:
    exits = (ended(0, "r01-t01", code=1, tail=GLOO), ended(3, "r01-t02", signal=9))
    fault = attribute(view(exits), 10.0 + SETTLE)
    assert fault is not None
    assert (fault.cause, fault.subject) == (Cause.PROCESS, "rank 3")
    assert "SIGKILL" in fault.summary


def test_the_users_error_is_the_root_and_its_signature_has_no_numbers() -> None:
    one = attribute(view((ended(2, "r01-t02", code=1, tail=USER), ended(0, "r01-t01", code=1, tail=GLOO))), 11)
    two = attribute(view((ended(3, "r01-t02", code=1, tail=USER.replace("17", "99")),)), 11)
    assert one is not None
    assert two is not None
    assert one.cause is Cause.EXIT
    assert one.signature == two.signature
    assert one.evidence[-1].endswith("ValueError: bad batch 17")


def test_a_port_in_use_is_not_the_users_error() -> None:
    tail = (
        "torch.distributed.DistNetworkError: The server socket has failed to listen: EADDRINUSE Address already in use"
    )
    fault = attribute(view((ended(0, "r01-t01", code=1, tail=tail),)), 11)
    assert fault is not None
    assert fault.cause is Cause.PORT


def test_a_hang_names_the_rank_that_is_behind() -> None:
    assert attribute(view(steps=(6, 6, 6, 5)), 69.0) is None
    fault = attribute(view(steps=(6, 6, 6, 5)), 71.0)
    assert fault is not None
    assert (fault.cause, fault.nodes) == (Cause.HANG, ("r01-t02",))
    assert "rank 3" in fault.subject


def test_a_hang_with_nobody_behind_blames_nobody() -> None:
    fault = attribute(view(), 71.0)
    assert fault is not None
    assert (fault.cause, fault.nodes) == (Cause.HANG, ())


@pytest.mark.parametrize(
    ("tail", "echo"),
    [
        (GLOO, True),
        (USER, False),
        ("RuntimeError: NCCL error: ncclRemoteError: remote process exited", True),
        ("", False),
    ],
)
def test_echoes_are_told_from_own_errors(tail: str, echo: bool) -> None:
    assert is_echo(tail) is echo


def test_the_last_error_line_is_found_behind_a_rank_prefix() -> None:
    assert last_error("x\n[rank3]: ValueError: no\nbye") == "ValueError: no"
