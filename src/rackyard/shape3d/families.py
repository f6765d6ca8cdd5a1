"""Families of procedural shapes: synthetic objects in a canonical pose, each named by one integer.

They stand for a dataset that is nobody's property: the seed says everything. Seeds below
`HELD_OUT` are for training, seeds from `HELD_OUT` on are never trained on. No part is thinner than
about .1 of the unit cube, because a 32-token latent does not resolve less (shared/facts/shape3d.md, §5).
"""

import random
from collections.abc import Callable, Sequence

from rackyard.shape3d.sdf import Kind, Part, Shapes, fit, pack

HELD_OUT = 1_000_000
_SEAM = 0.01  # parts that meet overlap by this: where they only touched, the distance would be 0 inside the shape


def _box(x: float, y: float, z: float, a: float, b: float, c: float) -> Part:
    return Part(Kind.BOX, (x, y, z), (a, b, c))


def _ball(x: float, y: float, z: float, a: float, b: float, c: float) -> Part:
    return Part(Kind.ELLIPSOID, (x, y, z), (a, b, c))


def _rod(y: float, radius: float, half: float) -> Part:
    return Part(Kind.CYLINDER, (0.0, y, 0.0), (radius, half, 0.0))


def _cone(y: float, low: float, half: float, high: float) -> Part:
    return Part(Kind.CONE, (0.0, y, 0.0), (low, half, high))


def _legs(w: float, d: float, top: float, half: float) -> list[Part]:
    """Four square legs under a board of half width w and half depth d whose underside is at `top`."""
    x, z, high = w - half, d - half, (top + _SEAM) / 2
    return [_box(i * x, high, j * z, half, high, half) for i in (-1, 1) for j in (-1, 1)]


def chair(r: random.Random) -> list[Part]:
    w, d, seat, leg = r.uniform(0.38, 0.55), r.uniform(0.38, 0.52), r.uniform(0.6, 0.85), r.uniform(0.075, 0.105)
    thick, back, high = r.uniform(0.07, 0.1), r.uniform(0.07, 0.1), r.uniform(0.4, 0.62)
    return [
        *_legs(w, d, seat, leg),
        _box(0, seat + thick, 0, w, thick, d),
        _box(0, seat + 2 * thick + high, back - d, w, high + _SEAM, back),
    ]


def table(r: random.Random) -> list[Part]:
    w, d, top, thick = r.uniform(0.7, 0.9), r.uniform(0.45, 0.9), r.uniform(0.6, 1.0), r.uniform(0.07, 0.11)
    if r.random() < 0.35:
        foot = r.uniform(0.3, 0.5)
        return [
            Part(Kind.CYLINDER, (0, top + thick, 0), (w, thick, 0)),
            _rod(top / 2, r.uniform(0.1, 0.16), top / 2 + _SEAM),
            _rod(0.08, foot, 0.08),
        ]
    return [*_legs(w, d, top, r.uniform(0.08, 0.12)), _box(0, top + thick, 0, w, thick, d)]


def mug(r: random.Random) -> list[Part]:
    radius, half, wall = r.uniform(0.42, 0.6), r.uniform(0.45, 0.75), r.uniform(0.09, 0.13)
    ring, tube = half * r.uniform(0.45, 0.6), r.uniform(0.075, 0.1)
    hollow = Part(Kind.CYLINDER, (0, 2 * wall, 0), (radius - wall, half, 0), cut=True)
    return [_rod(0, radius, half), Part(Kind.TORUS, (radius, 0, 0), (ring, tube, 0), axis=2), hollow]


def snowman(r: random.Random) -> list[Part]:
    low, mid, top = r.uniform(0.42, 0.55), r.uniform(0.3, 0.4), r.uniform(0.2, 0.28)
    y1 = 0.8 * (low + mid)
    y2 = y1 + 0.8 * (mid + top)
    parts = [_ball(0, 0, 0, low, low, low), _ball(0, y1, 0, mid, mid, mid), _ball(0, y2, 0, top, top, top)]
    if r.random() < 0.5:
        brim, hat = top * r.uniform(1.0, 1.3), r.uniform(0.12, 0.2)
        parts += [_rod(y2 + 0.75 * top, brim, 0.06), _rod(y2 + 0.75 * top + hat, 0.65 * brim, hat)]
    return parts


def rocket(r: random.Random) -> list[Part]:
    radius, half, nose = r.uniform(0.2, 0.3), r.uniform(0.5, 0.75), r.uniform(0.18, 0.32)
    fin, high, thick = r.uniform(0.15, 0.28), r.uniform(0.15, 0.28), r.uniform(0.06, 0.08)
    reach, y = radius + fin, high - half
    return [
        _rod(0, radius, half),
        _cone(half + nose - _SEAM, radius, nose, 0.03),
        _box(0, y, 0, reach, high, thick),
        _box(0, y, 0, thick, high, reach),
    ]


def dumbbell(r: random.Random) -> list[Part]:
    half, rod, radius = r.uniform(0.4, 0.65), r.uniform(0.08, 0.13), r.uniform(0.28, 0.42)
    bar = Part(Kind.CYLINDER, (0, 0, 0), (rod, half, 0), axis=0)
    if r.random() < 0.5:
        return [bar, *[_ball(i * half, 0, 0, radius, radius, radius) for i in (-1, 1)]]
    plate = r.uniform(0.1, 0.2)
    return [bar, *[Part(Kind.CYLINDER, (i * half, 0, 0), (radius, plate, 0), axis=0) for i in (-1, 1)]]


def lamp(r: random.Random) -> list[Part]:
    pole, shade = r.uniform(0.4, 0.6), r.uniform(0.2, 0.32)
    wide, narrow = r.uniform(0.38, 0.55), r.uniform(0.16, 0.3)
    return [
        _rod(0.07, r.uniform(0.28, 0.42), 0.07),
        _rod(pole, r.uniform(0.07, 0.1), pole),
        _cone(2 * pole + 0.7 * shade, wide, shade, narrow),
    ]


def plane(r: random.Random) -> list[Part]:
    long, girth, span = r.uniform(0.75, 0.9), r.uniform(0.14, 0.2), r.uniform(0.65, 0.9)
    chord, thick, tail = r.uniform(0.14, 0.22), r.uniform(0.06, 0.08), r.uniform(0.28, 0.4)
    z, high = 0.12 - long, r.uniform(0.15, 0.24)
    return [
        _ball(0, 0, 0, girth, girth, long),
        _box(0, 0, r.uniform(0, 0.15), span, thick, chord),
        _box(0, 0.04, z, tail, thick, 0.11),
        _box(0, high, z, 0.065, high, 0.12),
    ]


def car(r: random.Random) -> list[Part]:
    long, wide, high = r.uniform(0.75, 0.9), r.uniform(0.32, 0.42), r.uniform(0.14, 0.2)
    cab, roof, wheel = long * r.uniform(0.4, 0.6), r.uniform(0.13, 0.18), r.uniform(0.17, 0.22)
    z = long * 0.58
    wheels = [Part(Kind.CYLINDER, (i * wide, -high, j * z), (wheel, 0.08, 0), axis=0) for i in (-1, 1) for j in (-1, 1)]
    return [_box(0, 0, 0, wide, high, long), _box(0, high + roof, -0.08, 0.85 * wide, roof + _SEAM, cab), *wheels]


FAMILIES: dict[str, Callable[[random.Random], list[Part]]] = {
    f.__name__: f for f in (chair, table, mug, snowman, rocket, dumbbell, lamp, plane, car)
}


def family_of(seed: int) -> str:
    """The family a seed belongs to; consecutive seeds go round all families."""
    return list(FAMILIES)[seed % len(FAMILIES)]


def parts_of(seed: int) -> list[Part]:
    """The shape of a seed, fitted to the unit cube. The same integer gives the same shape everywhere."""
    # random.Random's random() and uniform() are reproducible across Python versions by its documentation.
    return fit(FAMILIES[family_of(seed)](random.Random(seed)))


def shapes_of(seeds: Sequence[int]) -> Shapes:
    """The shapes of many seeds as one batch."""
    return pack([parts_of(seed) for seed in seeds])


def train_seeds(count: int) -> range:
    """Seeds to train on; an error if so many would run into the held-out ones."""
    if count > HELD_OUT:
        raise ValueError(f"{count} training shapes would overlap the held-out seeds, which start at {HELD_OUT}")
    return range(count)


def held_out_seeds(count: int) -> range:
    """Seeds that no training here ever uses."""
    return range(HELD_OUT, HELD_OUT + count)
