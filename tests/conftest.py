"""What all tests share."""

import gc
import os
import random
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from rackyard.errors import RackyardError

ROOT = Path(__file__).resolve().parents[1]

# Shared and slow machines: a deadline a run would fail on somebody else's load, not on our code.
settings.register_profile("rackyard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("ci", settings.get_profile("rackyard"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "rackyard")


def corpus_folder() -> Path:
    """Where the real inputs are expected: RACKYARD_CORPUS, or shared/data beside the repository."""
    return Path(os.environ.get("RACKYARD_CORPUS") or ROOT.parent / "shared" / "data")


@pytest.fixture(scope="session")
def corpus() -> Path:
    """The folder of real public inputs. Skips where it is absent; fails where it is required."""
    folder = corpus_folder()
    if folder.is_dir():
        return folder
    reason = f"no corpus at {folder}: set RACKYARD_CORPUS to the folder of real inputs"
    if os.environ.get("RACKYARD_CORPUS_REQUIRED") == "1":
        pytest.fail(reason)
    pytest.skip(reason)


Fuzz = Callable[..., None]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What damages inputs at random is marked `fuzz`, so that `make fuzz` finds all of it."""
    for item in items:
        if "fuzz" in getattr(item, "fixturenames", ()):
            item.add_marker("fuzz")


@pytest.fixture
def fuzz() -> Fuzz:
    """`fuzz(read, seeds)`: call a reader with many damaged inputs. What it may do is answer or raise RackyardError.

    RACKYARD_FUZZ sets how many (1,000 in the tests, 100,000 in `make fuzz`). Each input is a seed with bytes flipped,
    cut, doubled, swapped with another seed's, or plain noise. One in fifty runs under tracemalloc: the reader may not
    hold more than ten times the input's size at its peak, beyond a floor of 256 KiB that any Python code takes.
    """
    return _fuzz


def _fuzz(read: Callable[[bytes], object], seeds: Sequence[bytes], *, seed: int = 1) -> None:
    draw = random.Random(seed)
    for number in range(int(os.environ.get("RACKYARD_FUZZ", "1000"))):
        data = _damage(draw, seeds)
        watched = number % 50 == 0
        if watched:
            gc.collect()
            tracemalloc.start()
        try:
            read(data)
        except RackyardError as error:
            assert "Traceback" not in str(error)
        except Exception as error:
            raise AssertionError(f"input {number} of seed {seed}: {error!r} for {data[:2000]!r}") from error
        finally:
            if watched:
                peak = tracemalloc.get_traced_memory()[1]
                tracemalloc.stop()
        if watched:
            assert peak <= 10 * len(data) + 256 * 1024, f"{peak} bytes for an input of {len(data)}"


def _damage(draw: random.Random, seeds: Sequence[bytes]) -> bytes:
    data = bytearray(draw.choice(seeds))
    for _ in range(draw.randint(1, 6)):
        at, end = sorted((draw.randint(0, len(data)), draw.randint(0, len(data))))
        match draw.randrange(7):
            case 0 if at < len(data):
                data[at] = draw.randrange(256)
            case 1:
                del data[at : min(end, at + 200)]
            case 2:
                data[at:at] = data[at : min(end, at + 400)]
            case 3:
                data[at:at] = draw.choice(
                    (b"\0", b"\xff\xfe", b"-1", b"99999999999999999999", b"\n", b'"', b"<", b"{", b"N/A")
                )
            case 4:
                other = draw.choice(seeds)
                start = draw.randint(0, len(other))
                data[at:at] = other[start : start + 300]
            case 5:
                del data[end:]
            case _:
                data[at:at] = draw.randbytes(draw.randint(1, 40))
    return bytes(data)
