"""Which nodes each tier holds together: domains, leaf groups, blocks, parts."""

from dataclasses import replace

from rackyard.fabric import BLOCK, DOMAIN, LEAF, PART, SITE, Group, Leaf, Site, Spine, largest, simulate, tiers


def shape(site: Site) -> list[tuple[str, list[int]]]:
    return [(tier[0].tier_name, [len(group.nodes()) for group in tier]) for tier in tiers(site)]


def depth(group: Group) -> list[str]:
    return [group.tier_name, *(depth(group.children[0]) if group.children else [])]


def test_one_set_of_spines_joins_all_racks() -> None:
    assert shape(simulate(racks=3, trays=4)) == [(DOMAIN, [4, 4, 4]), (BLOCK, [12])]


def test_blocks_stand_between_leaf_groups_and_the_core() -> None:
    site = simulate(racks=5, trays=2, racks_per_block=2)
    assert shape(site) == [(DOMAIN, [2] * 5), (BLOCK, [4, 4, 2]), (PART, [10])]
    top = largest(site)
    assert top is not None
    assert depth(top) == [PART, BLOCK, LEAF, DOMAIN]
    assert [block.nodes()[0] for block in top.children] == ["r01-t01", "r03-t01", "r05-t01"]
    assert top.switches == ("core-1", "core-2", "core-3", "core-4")


def test_servers_join_the_block_that_the_last_rack_began() -> None:
    top = largest(simulate(racks=1, trays=2, hgx=9, racks_per_block=2))
    assert top is not None
    assert [len(block.nodes()) for block in top.children] == [6, 5]
    assert top.children[0].nodes()[:3] == ("r01-t01", "r01-t02", "hgx-01")


def test_blocks_without_a_core_meet_in_the_site() -> None:
    site = simulate(racks=4, trays=1, racks_per_block=2)
    apart = replace(site, spines=tuple(replace(spine, above=()) for spine in site.spines))
    assert [name for name, _ in shape(apart)] == [DOMAIN, BLOCK, SITE]


def test_a_leaf_that_lacks_some_spines_stays_in_its_block() -> None:
    site = simulate(racks=4, trays=1, racks_per_block=2)
    leaves = tuple(replace(leaf, spines=leaf.spines[:5]) if leaf.rack == "r02" else leaf for leaf in site.leaves)
    assert shape(replace(site, leaves=leaves))[1] == (BLOCK, [2, 2])


def test_the_first_block_with_half_of_the_spines_is_the_one() -> None:
    site = simulate(racks=3, trays=1, racks_per_block=1)
    given = {"r01": ("a", "b", "c", "d"), "r02": ("c", "w", "x", "y"), "r03": ("c", "y", "a", "x")}
    leaves = tuple(Leaf(leaf.name, leaf.rail, leaf.rack, 4, given[leaf.rack]) for leaf in site.leaves)
    odd = replace(site, leaves=leaves, spines=tuple(Spine(name) for name in "abcdwxy"))
    blocks = shape(odd)[1]
    assert blocks == (BLOCK, [2, 1])
    assert tiers(odd)[1][0].nodes() == ("r01-t01", "r03-t01")
