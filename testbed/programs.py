"""The command line of every program: a pure function of the cluster's plan.

All listen on 127.0.0.1 or on a Unix socket, and nowhere else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from testbed.families import built, family
from testbed.layout import Layout, Plan

LOOPBACK = "127.0.0.1"

_SOCKETS = ("unix://client:0", "unix://peer:0")
"""etcd's listeners: socket files in the cluster's folder, which all programs run in. etcd takes no path, only what
looks like host and port. A port would let anybody on this machine write past the API server; a file in a folder that
only its owner may enter does not.
"""


@dataclass(frozen=True, slots=True)
class Launch:
    """How to start a program, and the address that says when it is ready (none: as soon as it runs)."""

    name: str
    argv: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    ready: str = ""


def launches(layout: Layout, plan: Plan) -> tuple[Launch, ...]:
    """Every program of the cluster, in the order of their start."""
    names = [name for part in ("", *plan.options.parts) for name in ORDER[part]]
    return tuple(launch(name, layout, plan) for name in names)


def launch(name: str, layout: Layout, plan: Plan) -> Launch:
    """One program by name, with the flags that the options add to it."""
    found = _MAKERS[name](layout, plan)
    more = plan.options.flags.get(name, ())
    return Launch(found.name, found.argv + tuple(more), found.environment, found.ready)


def _binary(of: str, name: str) -> str:
    return str(built(family(of)) / name)


def _https(layout: Layout, plan: Plan, name: str) -> tuple[str, ...]:
    """A TLS listener with a certificate of its own making, kept in the cluster's folder."""
    port, certs = plan.ports[name], layout.certs / name
    return (f"--bind-address={LOOPBACK}", f"--secure-port={port}", f"--cert-dir={certs}")


def _etcd(layout: Layout, plan: Plan) -> Launch:
    client, peer = _SOCKETS
    argv = (
        _binary("etcd", "etcd"),
        f"--data-dir={layout.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # what a power failure loses may be lost here
        "--quota-backend-bytes=8589934592",
        "--auto-compaction-retention=5m",
        "--log-level=warn",
    )
    return Launch("etcd", argv)


def _apiserver(layout: Layout, plan: Plan) -> Launch:
    key = layout.certs / "apiserver.key"  # made by the API server itself, before it reads it again for tokens
    argv: tuple[str, ...] = (
        _binary("kubernetes", "kube-apiserver"),
        f"--etcd-servers={_SOCKETS[0]}",
        f"--secure-port={plan.ports['kube-apiserver']}",
        f"--bind-address={LOOPBACK}",
        f"--advertise-address={LOOPBACK}",
        f"--cert-dir={layout.certs}",
        f"--token-auth-file={layout.tokens}",
        "--authorization-mode=RBAC",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged",
        "--endpoint-reconciler-type=none",
        "--disable-admission-plugins=ServiceAccount",  # pods need not wait for a default service account
        "--shutdown-delay-duration=0s",
    )
    if plan.options.load:
        argv += (
            "--enable-priority-and-fairness=false",
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
            "--disable-admission-plugins=TaintNodesByCondition",  # taints every new node, to be taken off again
        )
    return Launch("kube-apiserver", argv, ready=f"https://{LOOPBACK}:{plan.ports['kube-apiserver']}/readyz")


def _kubernetes(name: str, *flags: str) -> Callable[[Layout, Plan], Launch]:
    def make(layout: Layout, plan: Plan) -> Launch:
        argv: tuple[str, ...] = (
            _binary("kubernetes", name),
            f"--kubeconfig={layout.kubeconfig}",
            "--leader-elect=false",
            *_https(layout, plan, name),
            *(flag.format(certs=layout.certs) for flag in flags),
        )
        if name == "kube-controller-manager" and plan.options.load:
            # The TTL controller writes to every node each time their number passes 100, 500, 1000, ...
            argv += ("--node-monitor-grace-period=500s", "--controllers=*,-ttl-controller")
        return Launch(name, argv, ready=f"https://{LOOPBACK}:{plan.ports[name]}/healthz")

    return make


def _kwok(layout: Layout, plan: Plan) -> Launch:
    stages = sorted((built(family("kwok")) / "stages").glob("*.yaml"))
    argv = (
        _binary("kwok", "kwok"),
        f"--kubeconfig={layout.kubeconfig}",
        # Only nodes made for it: others have a kubelet of their own.
        "--manage-nodes-with-annotation-selector=kwok.x-k8s.io/node=fake",
        # A tenth of the heartbeats: those of a thousand nodes keep half a core busy.
        f"--node-lease-duration-seconds={400 if plan.options.load else 40}",
        f"--config={Path(__file__).with_name('stages.yaml')}",
        *(f"--config={stage}" for stage in stages),
    )
    return Launch("kwok", argv, {"KWOK_WORKDIR": str(layout.folder / "kwok")})


def _volcano(name: str, *flags: str) -> Callable[[Layout, Plan], Launch]:
    def make(layout: Layout, plan: Plan) -> Launch:
        health = f"{LOOPBACK}:{plan.ports[name]}"
        argv = (
            _binary("volcano", name),
            f"--kubeconfig={layout.kubeconfig}",
            "--leader-elect=false",
            "--enable-healthz",
            f"--healthz-address={health}",
            "--enable-metrics",
            f"--listen-address={LOOPBACK}:{plan.ports[f'{name}-metrics']}",
            "--kube-api-qps=2000",
            "--kube-api-burst=2000",
            *(flag.format(folder=layout.folder) for flag in flags),
        )
        environment = {"DEBUG_SOCKET_DIR": str(layout.folder / "sockets")}
        return Launch(name, argv, environment, ready=f"http://{health}/healthz")

    return make


def _kueue(layout: Layout, plan: Plan) -> Launch:
    argv = (
        _binary("kueue", "kueue"),
        f"--config={layout.folder / 'kueue.yaml'}",
        f"--kubeconfig={layout.kubeconfig}",
        "--zap-log-level=1",
    )
    return Launch("kueue", argv, ready=f"http://{LOOPBACK}:{plan.ports['kueue']}/readyz")


def _operator(name: str) -> Callable[[Layout, Plan], Launch]:
    def make(layout: Layout, plan: Plan) -> Launch:
        argv = (
            _binary(name, name),
            f"--config={layout.folder / f'{name}.yaml'}",
            f"--kubeconfig={layout.kubeconfig}",
            "--zap-log-level=1",
        )
        # Trainer looks for its certificate under the folder for temporary files, and nowhere else.
        environment = {"TMPDIR": str(layout.certs / name)}
        return Launch(name, argv, environment, ready=f"http://{LOOPBACK}:{plan.ports[name]}/readyz")

    return make


ORDER: dict[str, tuple[str, ...]] = {
    "": ("etcd", "kube-apiserver", "kube-scheduler", "kube-controller-manager"),
    "kwok": ("kwok",),
    "volcano": ("vc-scheduler", "vc-controller-manager"),
    "kueue": ("kueue",),
    "jobset": ("jobset",),
    "lws": ("lws",),
    "trainer": ("trainer",),
}
"""The programs of each part; those of no part run in every cluster."""

# The clients' own limits (20 to 100 requests a second) would be what is measured with thousands of pods.
_FAST = ("--kube-api-qps=2000", "--kube-api-burst=2000")

_MAKERS: dict[str, Callable[[Layout, Plan], Launch]] = {
    "etcd": _etcd,
    "kube-apiserver": _apiserver,
    "kube-scheduler": _kubernetes("kube-scheduler", *_FAST),
    "kube-controller-manager": _kubernetes(
        "kube-controller-manager", "--service-account-private-key-file={certs}/apiserver.key", *_FAST
    ),
    "kwok": _kwok,
    "vc-scheduler": _volcano(
        "vc-scheduler", "--scheduler-conf={folder}/volcano-scheduler.conf", "--cache-dump-dir={folder}"
    ),
    "vc-controller-manager": _volcano("vc-controller-manager"),
    "kueue": _kueue,
    "jobset": _operator("jobset"),
    "lws": _operator("lws"),
    "trainer": _operator("trainer"),
}
