"""The table of label keys: what ships, what a site lays over it, and complaints with their place."""

import re
from collections.abc import Callable

import pytest

from rackyard.errors import SpecError, UsageError
from rackyard.fabric.labelkeys import OWN, Fact, KeyTable, Write, load, shipped
from rackyard.fabric.labels import label_value

ROW = '[[own]]\nname = "rack"\nfact = "rack"\nwrite = "always"\nmeaning = "m"\nsource = "s"\n'
ALIAS = '[[alias]]\nkey = "example.com/r"\ngroup = "g"\nfact = "rack"\nwrite = "asked"\nmeaning = "m"\nsource = "s"\n'


def test_every_fact_of_ours_has_a_key_under_our_prefix() -> None:
    own = [key for key in shipped().keys if key.group == OWN]
    written = set(Fact) - {Fact.FABRIC_CLIQUE, Fact.DOMAIN_NAME}
    assert {key.fact for key in own} == written and len(own) == len(written)
    assert all(key.stem.startswith("rackyard.io/") and key.write is Write.ALWAYS for key in own)


@pytest.mark.parametrize(
    ("key", "group", "fact", "number"),
    [
        ("rackyard.io/rails-up", OWN, Fact.RAILS_UP, None),
        ("rackyard.io/leaf-rail-7", OWN, Fact.LEAF_OF_RAIL, 7),
        ("rackyard.io/tier-1", OWN, Fact.TIER, 1),
        ("fabric.topograph.run/tier-12", "topograph", Fact.TIER, 12),
        ("accelerator.topograph.run/domain", "topograph", Fact.FABRIC_CLIQUE, None),
        ("network.topology.nvidia.com/spine", "topograph-0", Fact.TIER, 1),
        ("nvidia.com/gpu.clique", "gpu-feature-discovery", Fact.FABRIC_CLIQUE, None),
        ("topology.k8s.aws/network-node-layer-3", "aws", Fact.TIER, 0),
        ("oci.oraclecloud.com/rdma.hpc_island_id", "oci", Fact.TIER, 2),
        ("ds.coreweave.com/nvlink.domain", "coreweave", Fact.DOMAIN_NAME, None),
    ],
)
def test_readers_find_what_a_key_means(key: str, group: str, fact: Fact, number: int | None) -> None:
    found = shipped().meaning(key)
    assert found is not None
    assert (found[0].group, found[0].fact, found[1]) == (group, fact, number)
    assert found[0].meaning and found[0].source


@pytest.mark.parametrize(
    "key", ["", "rack", "rackyard.io/tier-", "rackyard.io/tier-x1", "rackyard.io/tier-99999", "rackyard.io/tier-١"]
)
def test_a_key_of_no_row_means_nothing(key: str) -> None:
    assert shipped().meaning(key) is None


def test_aliases_are_written_only_when_asked_and_keys_of_others_never() -> None:
    table = shipped()
    assert {key.group for key in table.written()} == {OWN}
    assert {key.group for key in table.written(["topograph", "topograph-0"])} == {OWN, "topograph", "topograph-0"}
    with pytest.raises(UsageError, match="another component writes these keys"):
        table.written(["gpu-feature-discovery"])
    with pytest.raises(UsageError, match="topograph, topograph-0"):
        table.written(["slurm"])


def test_a_table_of_a_site_is_laid_over_the_shipped_one() -> None:
    table = load(ROW.replace("always", "never") + ALIAS)
    assert len(table.keys) == len(shipped().keys) + 1
    found = table.meaning("rackyard.io/rack")
    assert found is not None and found[0].write is Write.NEVER
    assert "example.com/r" in {key.stem for key in table.written(["g"])}
    assert load("") == shipped()


def test_a_table_of_a_site_can_stand_alone() -> None:
    table = load(f'extends = false\nprefix = "example.com"\n{ROW}')
    assert [key.shown for key in table.keys] == ["example.com/rack"]


def test_a_prefix_of_a_site_moves_all_our_keys() -> None:
    table = load('prefix = "gpu.example.com"')
    assert table.owns("gpu.example.com/rack") and not table.owns("rackyard.io/rack")
    assert {key.stem.partition("/")[0] for key in table.keys if key.group == OWN} == {"gpu.example.com"}
    found = table.meaning("gpu.example.com/tier-2")
    assert found is not None and found[1] == 2


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("prefix = ", "1:10", "not TOML"),
        ('a = "\n"', "1:6", "not TOML"),
        ('prefix = "kubernetes.io"', "1:1", "reserved"),
        ('prefix = "x.k8s.io"', "1:1", "reserved"),
        ('prefix = "Rack_Yard"', "1:1", "DNS subdomain"),
        ("extends = 1", "1:1", "true or false"),
        ("prefixes = 1", "1:1", "did you mean prefix?"),
        ("own = 3", "1:1", r"[[own]]"),
        (ROW + "  tear = 1\n", "7:3", "unknown key 'tear'"),
        (ROW.replace('fact = "rack"', 'fact = "rak"'), "3:1", "did you mean rack?"),
        (ROW.replace('write = "always"\n', ""), "1:1", "'write' is missing"),
        (ROW.replace('"m"', '""'), "5:1", "meaning: a text is wanted"),
        (ROW.replace('name = "rack"', 'name = "ra ck"'), "2:1", "no label key"),
        (ROW.replace('name = "rack"', 'name = "a/b"'), "2:1", "no label key"),
        (ROW.replace('name = "rack"', f'name = "{"r" * 64}"'), "2:1", "no label key"),
        (ROW + ROW, "8:1", "the first is in line 2"),
        (ROW + "tier = 1\n", "7:1", "only for a key that stands for one tier"),
        (ROW.replace('fact = "rack"', 'fact = "tier"'), "1:1", "or end the key with {tier}"),
        (ROW.replace('fact = "rack"', 'fact = "leaf-of-rail"'), "2:1", "one leaf for each rail"),
        (ROW.replace('"rack"\nf', '"t1{tier}"\nf').replace('fact = "rack"', 'fact = "tier"'), "2:1", "told apart"),
        (ALIAS.replace('"rack"', '"domain-name"'), "5:1", "only read"),
        (ALIAS.replace('"g"', '"own"'), "3:1", "own is for"),
        ("# é\r\n" + ALIAS.replace("example.com/r", "/r"), "3:1", "DNS subdomain"),
        ('[[own]]\nname = """\n[[alias]]\nfact = 1\n"""\nfact = "x"', "6:1", "is none of"),
    ],
)
def test_a_broken_table_is_told_with_line_and_column(text: str, place: str, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        load(text, "keys.toml")
    assert f"keys.toml:{place}\n" in f"{caught.value}\n" and words in str(caught.value)


def test_a_table_that_is_too_long_is_refused() -> None:
    with pytest.raises(SpecError, match="too long"):
        load("#" * 1_000_001)


def test_no_damaged_table_does_more_than_complain(fuzz: Callable[..., None]) -> None:
    def read(data: bytes) -> KeyTable:
        return load(data.decode("utf-8", "replace"), "keys.toml")

    fuzz(read, [(ROW + ALIAS).encode(), b'extends = false\nprefix = "a.b"\n' + ROW.encode()])


def test_values_are_what_kubernetes_takes_or_topographs_hash() -> None:
    for text in ("", "r01", "leaf-0-r01", "a" * 63, "4dc081dc-2655-5202-4390-79b4e3533148.1"):
        assert label_value(text) == text
    # topograph's own test has this pair (pkg/engines/k8s/labeler_test.go)
    long = "S3very-very-long-id-to-check-label-value-limits-of-63-characters"
    assert label_value(long) == "xf946c4acef2d5939"
    assert label_value("a" * 64) != label_value("a" * 65)


@pytest.mark.parametrize("text", ["-a", "a.", "a b", "MF0;leaf:MQM9700/U1", "blatt-ä", "a\n", "\ud800"])
def test_what_kubernetes_would_refuse_is_hashed(text: str) -> None:
    assert re.fullmatch("x[0-9a-f]{1,16}", label_value(text))
