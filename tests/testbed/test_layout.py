"""The folder of a cluster, its ports, and the list of clusters."""

import re
import stat
from pathlib import Path

import pytest

from rackyard.errors import ConflictError, UsageError
from testbed import layout
from testbed.access import write_kubeconfig
from testbed.api import Api
from testbed.cluster import Cluster, end, leftovers
from testbed.options import Options
from testbed.programs import ORDER, launches

ALL = ("kwok", "volcano", "kueue")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_folder_is_its_owners_and_read_back(tmp_path: Path) -> None:
    made, plan = layout.create(tmp_path / "c", Options(parts=("kwok",), flags={"etcd": ("--x",)}))
    assert mode(made.folder) == 0o700
    assert mode(made.tokens) == 0o600
    assert layout.read(tmp_path / "c") == (made, plan)
    assert dict(layout.known()) == {plan.mark: made.folder}
    layout.remove(made, plan)
    assert not made.folder.exists()
    assert dict(layout.known()) == {}


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    layout.create(tmp_path / "c", Options())
    with pytest.raises(ConflictError, match="not empty"):
        layout.create(tmp_path / "c", Options())


def test_no_cluster_is_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no cluster"):
        Cluster.open(tmp_path)


@pytest.mark.parametrize("name", ["", "A", "a b", "-a", "a" * 41, "../a"])
def test_names_that_are_none(name: str) -> None:
    with pytest.raises(UsageError, match="can't be called"):
        Options(name=name)


def test_ports_are_apart_and_below_the_ephemeral_ones() -> None:
    ports = layout.free_ports()
    assert sorted(ports) == sorted(layout.PORTS)
    assert len(set(ports.values())) == len(ports)
    assert all(1024 < port < 32768 for port in ports.values())


def test_the_kubeconfig_carries_a_secret_and_is_its_owners(tmp_path: Path) -> None:
    made, plan = layout.create(tmp_path / "c", Options(name="one"))
    (made.certs / "apiserver.crt").write_text("")
    write_kubeconfig(made, plan)
    assert mode(made.kubeconfig) == 0o600
    token = made.tokens.read_text().split(",")[0]
    assert len(token) >= 40
    assert token in made.kubeconfig.read_text()
    assert Api.of(made.kubeconfig).server == f"https://127.0.0.1:{plan.ports['kube-apiserver']}"


def test_every_listener_is_on_loopback_or_a_socket(tmp_path: Path) -> None:
    made, plan = layout.create(tmp_path / "c", Options(parts=ALL))
    found = {launch.name: " ".join(launch.argv) for launch in launches(made, plan)}
    assert list(found) == [name for part in ("", *ALL) for name in ORDER[part]]
    assert not any(re.search(r"[=/]0\.0\.0\.0|=:\d", argv) for argv in found.values())
    for name in ("kube-apiserver", "kube-scheduler", "kube-controller-manager"):
        assert "--bind-address=127.0.0.1" in found[name]
    assert "--listen-client-urls=unix://" in found["etcd"]
    assert f"--healthz-address=127.0.0.1:{plan.ports['vc-scheduler']}" in found["vc-scheduler"]


def test_no_token_is_on_a_command_line(tmp_path: Path) -> None:
    made, plan = layout.create(tmp_path / "c", Options(parts=ALL))
    token = made.tokens.read_text().split(",")[0]
    assert all(token not in word for launch in launches(made, plan) for word in launch.argv)


def test_flags_come_last(tmp_path: Path) -> None:
    made, plan = layout.create(tmp_path / "c", Options(load=True, flags={"kube-apiserver": ("--v=4",)}))
    found = next(launch for launch in launches(made, plan) if launch.name == "kube-apiserver")
    assert found.argv[-1] == "--v=4"
    assert "--max-requests-inflight=0" in found.argv


def test_a_cluster_without_its_folder_is_taken_off_the_list(tmp_path: Path) -> None:
    made, plan = layout.create(tmp_path / "c", Options())
    made.plan.write_text("{")
    end(plan.mark, made.folder)
    assert leftovers() == {}
