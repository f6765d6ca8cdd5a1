"""Agreement of the graph search with NCCL's own: part of ``nccl_oracle.py``, which calls `compare` for each case.

Kinds: ``graphs`` (channels and bandwidth within and over the network: what a graph is worth), ``attributes`` (all
fields of a graph) and ``channels`` (its rank orders and nets). A graph at which NCCL ends with an error counts as one
that must end here too.
"""

import math
from collections.abc import Iterator
from typing import Any

from rackyard.nccl.graphs import Graph, net_name
from rackyard.nccl.linktypes import GPU, PATH_TYPES
from rackyard.nccl.numbers import as_float
from rackyard.nccl.paths_compute import Computed, sized
from rackyard.nccl.search_graphs import Graphs, search_graphs

Document = dict[str, Any]
Comparison = tuple[str, int, int, list[str]]

WORTH = ("nChannels", "bwIntra", "bwInter")
MOST_GPUS = 1 << 30


def compare(document: Document, computed: Computed, *, most_gpus: int = MOST_GPUS) -> Iterator[Comparison]:
    """Our graphs for a case against NCCL's, for both sizes of communicator; none above ``most_gpus`` GPUs."""
    if computed.system.count(GPU) > most_gpus:
        return
    for scenario in document.get("scenarios", []):
        theirs = scenario.get("graphs", {})
        if theirs:
            system = sized(computed, scenario["nRanksFactor"]).system
            ours = search_graphs(system, collnet=any("collnet" in name.lower() for name in theirs))
            for name, graph in theirs.items():
                yield from _compare_graph(f"x{scenario['nRanksFactor']} {name}", name, ours, graph)


def _compare_graph(where: str, name: str, ours: Graphs, theirs: Document) -> Iterator[Comparison]:
    graph = ours.get(_ours(name))
    if theirs["code"] != 0 or graph is None:
        equal = theirs["code"] != 0 and graph is None and ours.ended_at == _ours(name)
        text = f"{where}: {graph.brief() if graph else ours.refused} here, code {theirs['code']} in NCCL"
        yield "graphs", int(equal), 1, [] if equal else [text]
        return
    mine = form(graph)
    for kind, keys in (
        ("graphs", WORTH),
        ("attributes", [key for key in theirs if key in mine and key != "channels"]),
        ("channels", ["channels"]),
    ):
        different = [key for key in keys if mine[key] != _plain(theirs[key])]
        texts = [f"{where} {key}: {mine[key]} here, {theirs[key]} in NCCL" for key in different]
        yield kind, int(not different), 1, texts


def _ours(name: str) -> str:
    lower = name.lower().replace("_", "")
    if lower.startswith("collnet"):
        return "collnetDirect" if "direct" in lower else "collnet"
    return name


def form(graph: Graph) -> Document:
    """A graph in the form of the results (schema 1 of the corpus)."""
    return {
        "id": graph.id,
        "pattern": graph.pattern,
        "crossNic": graph.cross_nic,
        "collNet": graph.coll_net,
        "minChannels": graph.min_channels,
        "maxChannels": graph.max_channels,
        "nChannels": graph.n_channels,
        "sameChannels": graph.same_channels,
        "bwIntra": graph.bw_intra,
        "bwInter": graph.bw_inter,
        "latencyInter": graph.latency_inter,
        "typeIntra": PATH_TYPES[graph.type_intra],
        "typeInter": PATH_TYPES[graph.type_inter],
        "nHops": graph.n_hops,
        "channels": [
            {"gpus": list(channel.ranks)}
            | ({"nets": [net_name(net) for net in channel.nets]} if channel.nets is not None else {})
            for channel in graph.channels
        ],
    }


def _plain(value: Any) -> Any:
    return as_float(value) if isinstance(value, float) and not math.isnan(value) else value
