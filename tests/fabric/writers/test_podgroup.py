"""The PodGroup of kube-scheduler: its fields, and a key that our labels really have."""

from dataclasses import replace

import pytest
from ruamel.yaml import YAML

from rackyard.errors import UsageError
from rackyard.fabric import simulate
from rackyard.fabric.labelkeys import load, shipped
from rackyard.fabric.labels import labels_of
from rackyard.fabric.writers.podgroup import write


def test_a_gang_as_large_as_the_smallest_domain_in_one_domain() -> None:
    whole = simulate(2, 4, name="Lab_1")
    site = replace(whole, nodes=whole.nodes[:-1])
    text = write(site)
    (group,) = YAML(typ="safe", pure=True).load_all(text)
    assert (group["apiVersion"], group["kind"]) == ("scheduling.k8s.io/v1alpha2", "PodGroup")
    assert group["metadata"] == {"name": "lab-1-one-domain"}
    assert group["spec"]["schedulingPolicy"] == {"gang": {"minCount": 3}}
    (constraint,) = group["spec"]["schedulingConstraints"]["topology"]
    labels = labels_of(site, shipped().written())
    values = [labels[node.name][constraint["key"]] for node in site.nodes]
    assert len(set(values)) == 2
    assert f"#   {constraint['key']}={values[0]} (4 nodes)\n" in text
    assert f"#   {constraint['key']}={values[-1]} (3 nodes)\n" in text
    assert "{podGroupName: lab-1-one-domain}" in text


def test_the_key_is_that_of_the_table() -> None:
    mine = load('prefix = "yard.example.com"\n')
    assert "topology: [{key: yard.example.com/domain}]" in write(simulate(1, 2), mine)


def test_what_no_pod_group_can_be_is_refused() -> None:
    site = simulate(1, 2)
    with pytest.raises(UsageError, match="no nodes"):
        write(replace(site, nodes=()))
    with pytest.raises(UsageError, match="Kubernetes node"):
        write(replace(site, nodes=(replace(site.nodes[0], name="Tray_1"),)))
