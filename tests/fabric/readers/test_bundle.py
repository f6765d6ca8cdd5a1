"""Tarballs: what is taken out of them, and what is refused."""

import gzip
import io
import random
import tarfile

import pytest
from tests.conftest import Fuzz

from rackyard.errors import RackyardError, SpecError, UsageError
from rackyard.fabric.readers import bundle, sysfs_tree
from rackyard.fabric.readers.reader import Capture

META = b"rackyard-collect 1\nhost=rack1-t02\ntime=20261130T094000Z\ngot nvidia-smi topo -m\n"


def tar(files: dict[str, bytes], *, form: int = tarfile.USTAR_FORMAT, special: tarfile.TarInfo | None = None) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
        if special is not None:
            archive.addfile(special)
    return out.getvalue()


def unpack(data: bytes, file: str = "in/rackyard-n7-20261130T094000Z.tar.gz") -> list[tuple[str, bytes, str]]:
    assert bundle.is_bundle(data)
    return [(capture.file, capture.data, capture.node) for capture in bundle.unpack(Capture(file, data))]


@pytest.mark.parametrize("form", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
@pytest.mark.parametrize("zipped", [False, True])
def test_files_come_out_with_their_node(form: int, zipped: bool) -> None:
    long = "a-folder/" * 15 + "x" * 120 + ".txt"
    data = tar({"meta": META, "query.csv": b"q" * 1000, f"./{long}": b""}, form=form) if form else b""
    if form == tarfile.USTAR_FORMAT:
        data = tar({"meta": META, "query.csv": b"q" * 1000, "./" + "d" * 90 + "/" + "e" * 90: b""})
        long = "d" * 90 + "/" + "e" * 90
    name = "in/rackyard-n7-20261130T094000Z.tar.gz"
    found = unpack(gzip.compress(data) if zipped else data)
    assert found[0] == (f"{name}/query.csv", b"q" * 1000, "rack1-t02")
    assert found[1][0] == f"{name}/{long}"


def test_the_node_comes_from_the_folder_or_the_name_of_the_file() -> None:
    assert unpack(tar({"topo.txt": b"t"}))[0][2] == "n7"
    assert unpack(tar({"topo.txt": b"t"}), "x/n-8.tgz")[0][2] == "n-8"
    assert [row[2] for row in unpack(tar({"n1/topo.txt": b"t", "site/n2/topo.txt": b"t"}))] == ["n1", "n2"]
    several = tar({"a/meta": META, "a/t": b"1", "b/meta": META.replace(b"t02", b"t03"), "b/t": b"2"})
    assert [row[2] for row in unpack(several)] == ["rack1-t02", "rack1-t03"]
    (capture,) = bundle.unpack(Capture("x.tar", tar({"t": b"1"}), "told"))
    assert capture.node == "told"


def test_files_below_a_bundle_belong_to_its_node() -> None:
    assert [row[2] for row in unpack(tar({"a/meta": META, "a/logs/t": b"1", "t": b"2"}))] == ["rack1-t02", "n7"]


def test_bundles_of_a_whole_site_in_one_tar() -> None:
    inner = {
        f"site/rackyard-n{n}-20261130T094000Z.tar.gz": gzip.compress(tar({"topo.txt": b"t", "q.csv": b"q"}))
        for n in range(3)
    }
    assert [row[2] for row in unpack(tar(inner), "site.tar")] == ["n0", "n0", "n1", "n1", "n2", "n2"]
    twice = tar({"a.tar": tar({"b.tar": tar({"c": b"c"})})})
    with pytest.raises(SpecError, match="within an archive"):
        unpack(twice)


def test_archives_in_an_archive_have_one_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_BYTES", 300_000)
    inner = {f"{n}.tar.gz": gzip.compress(tar({"t": random.Random(n).randbytes(80_000)})) for n in range(4)}
    with pytest.raises(SpecError, match="hold more than"):
        unpack(tar(inner), "site.tar")


def test_a_gzip_of_one_file() -> None:
    assert unpack(gzip.compress(b"GPU 0: x\n"), "topo.txt.gz") == [("topo.txt", b"GPU 0: x\n", "")]


def test_a_tree_of_sysfs_is_one_capture_and_its_links_are_text() -> None:
    link = tarfile.TarInfo("class/infiniband/mlx5_0")
    link.type, link.linkname = tarfile.SYMTYPE, "../../devices/pci0000:00/0000:01:00.0/infiniband/mlx5_0"
    rate = "sys/class/infiniband/mlx5_0/ports/1/rate"
    ((_, data, node),) = unpack(tar({rate: b"400 Gb/sec (4X NDR)\n", "x/counters/y": b"1"}, special=link))
    (nic,) = sysfs_tree.read(Capture("t", data, node)).nics
    assert (node, nic.name, nic.gbps, nic.pci) == ("n7", "mlx5_0", 400.0, "0000:01:00.0")


@pytest.mark.parametrize("name", ["/etc/passwd", "../up.txt", "a/../../up.txt"])
def test_names_that_lead_out_are_refused(name: str) -> None:
    with pytest.raises(SpecError, match="leads out"):
        unpack(tar({name: b"x"}))


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        (tarfile.LNKTYPE, "hard link"),
        (tarfile.SYMTYPE, "symbolic link"),
        (tarfile.CHRTYPE, "device"),
        (tarfile.BLKTYPE, "device"),
        (tarfile.FIFOTYPE, "pipe"),
        (b"S", "no plain file"),
    ],
)
def test_what_is_no_file_is_refused(kind: bytes, word: str) -> None:
    special = tarfile.TarInfo("odd")
    special.type, special.linkname = kind, "query.csv"
    with pytest.raises(SpecError, match=word):
        unpack(tar({"query.csv": b"x"}, special=special))


def test_a_bomb_is_refused_before_it_unpacks() -> None:
    data = gzip.compress(tar({"zeros": bytes(40 << 20)}))
    with pytest.raises(UsageError, match="times its size"):
        unpack(data)


def test_damage_is_told() -> None:
    data = tar({"query.csv": b"x" * 2000})
    for broken, why in (
        (data[:1500], "not whole"),
        (data[:700], "not whole"),
        (data[:100] + b"9" + data[101:], "does not add up"),
        (gzip.compress(data)[:-9], "no end"),
        (gzip.compress(data)[:-8] + b"abcdefgh", "incorrect data check"),
        (b"\x1f\x8bnonsense", "header|method"),
    ):
        with pytest.raises(UsageError, match=why):
            unpack(broken)


def test_too_many_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_MEMBERS", 2)
    with pytest.raises(RackyardError, match="more than 2 files"):
        unpack(tar({"a": b"", "b": b"", "c": b""}))


def test_other_files_are_no_bundles() -> None:
    assert not bundle.is_bundle(b"") and not bundle.is_bundle(b"GPU 0: x\n")


def test_fuzz(fuzz: Fuzz) -> None:
    plain = tar({"meta": META, "query.csv": b"index, uuid\n0, GPU-0\n" * 20}, form=tarfile.GNU_FORMAT)
    tree = tar({"class/infiniband/mlx5_0/ports/1/rate": b"400 Gb/sec"}, form=tarfile.PAX_FORMAT)
    fuzz(lambda data: bundle.unpack(Capture("f.tar", data)), [plain, tree])


def test_fuzz_of_gzip(fuzz: Fuzz, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle, "MAX_RATIO", 5)  # what fuzz allows; a sound gzip may take 100 times its size
    plain = tar({"meta": META, "query.csv": b"index, uuid\n0, GPU-0\n" * 20}, form=tarfile.GNU_FORMAT)
    fuzz(lambda data: bundle.unpack(Capture("f.tar", data)), [gzip.compress(plain), gzip.compress(b"topo" * 99)])
