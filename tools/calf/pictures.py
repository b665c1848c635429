"""The pictures that calf with eyes sees, drawn from a seed.

A scene says what is in a picture; `paint` draws it at any size.  Its colours are plain, its shapes
are turned a little and vary in place and size.
"""

import math
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import numpy as np

SIDE = 60
SHAPES = ("circle", "square", "triangle", "star")
DIGITS = tuple("0123456789")
KINDS = SHAPES + DIGITS
COLOURS = {
    "red": (214, 36, 32),
    "orange": (245, 134, 12),
    "yellow": (246, 214, 24),
    "green": (28, 150, 52),
    "blue": (30, 84, 216),
    "purple": (138, 40, 170),
    "black": (24, 24, 26),
}
GROUNDS = ((255, 255, 255), (236, 236, 232), (214, 228, 240), (244, 228, 214))
PLACES = (
    "at the top left", "at the top", "at the top right",
    "on the left", "in the middle", "on the right",
    "at the bottom left", "at the bottom", "at the bottom right",
)  # fmt: skip
MIDDLE, ROW = 4, 3
COUNTS = ("no", "one", "two", "three", "four", "five")


class Thing(NamedTuple):
    """A shape or a digit; `place` is a number of `PLACES`, lengths are in widths of the picture."""

    kind: str
    colour: str
    place: int
    x: float
    y: float
    radius: float
    angle: float
    tint: tuple[float, float, float]


class Scene(NamedTuple):
    """What is in a picture, in the order of the places."""

    things: tuple[Thing, ...]
    ground: tuple[int, int, int]


def some_thing(rng, kind, colour, place):
    """A thing in one of the nine places."""
    x, y = ((part + 0.5) / 3 + rng.uniform(-0.03, 0.03) for part in (place % ROW, place // ROW))
    return _thing(rng, kind, colour, place, x, y, rng.uniform(0.1, 0.135))


def large_thing(rng, kind, colour):
    """A thing that fills much of the picture."""
    x, y = (0.5 + rng.uniform(-0.06, 0.06) for _ in range(2))
    return _thing(rng, kind, colour, MIDDLE, x, y, rng.uniform(0.15, 0.36))


def _thing(rng, kind, colour, place, x, y, radius):
    tint = tuple(min(255.0, max(0.0, part + rng.uniform(-14, 14))) for part in COLOURS[colour])
    return Thing(kind, colour, place, x, y, radius, rng.uniform(-0.12, 0.12), tint)


def some_scene(rng):
    """One large thing, or up to five things, some of which are of one kind and colour."""
    ground = rng.choice(GROUNDS)
    if rng.random() < 0.1:
        return Scene((large_thing(rng, some_kind(rng), rng.choice(list(COLOURS))),), ground)
    count, looks = rng.randint(1, 5), []
    for _ in range(count):
        again = looks and rng.random() < 0.4
        looks.append(rng.choice(looks) if again else (some_kind(rng), rng.choice(list(COLOURS))))
        if again and rng.random() < 0.3:
            looks[-1] = (looks[-1][0], rng.choice(list(COLOURS)))
    places = sorted(rng.sample(range(len(PLACES)), count))
    rng.shuffle(looks)
    things = (some_thing(rng, *look, place) for look, place in zip(looks, places, strict=True))
    return Scene(tuple(things), ground)


def some_kind(rng):
    """A shape, or more rarely a digit."""
    return rng.choice(SHAPES if rng.random() < 0.6 else DIGITS)


def paint(scene, side=SIDE):
    """The picture of a scene: (side, side, 3) of uint8."""
    picture = np.empty((side, side, 3), np.float32)
    picture[:] = scene.ground
    for thing in scene.things:
        reach = 1.25 * thing.radius * side + 2
        (left, right), (top, bottom) = (
            (max(0, int(middle * side - reach)), min(side, int(middle * side + reach) + 1))
            for middle in (thing.x, thing.y)
        )
        x = (np.arange(left, right, dtype=np.float32) + 0.5) / side - thing.x
        y = (np.arange(top, bottom, dtype=np.float32) + 0.5) / side - thing.y
        inside = 0.5 - side * thing.radius * distance(thing, x[None, :], y[:, None])
        share = np.clip(inside, 0, 1)[..., None]
        part = picture[top:bottom, left:right]
        part += share * (np.array(thing.tint, np.float32) - part)
    return np.round(picture).astype(np.uint8)


def distance(thing, x, y):
    """How far points lie outside of a thing that stands in the origin, in its radii."""
    cos, sin = math.cos(thing.angle) / thing.radius, math.sin(thing.angle) / thing.radius
    x, y = x * cos + y * sin, y * cos - x * sin
    if thing.kind == "circle":
        return np.hypot(x, y) - 0.95
    if thing.kind in DIGITS:
        return _to_lines(x, y, _strokes(thing.kind)) - 0.17
    corners = _corners(thing.kind)
    lines = np.concatenate([corners, np.roll(corners, -1, 0)], 1)
    far, inside = _to_lines(x, y, lines), np.zeros(np.broadcast(x, y).shape, bool)
    for ax, ay, bx, by in lines:
        if ay != by:
            crossed = (ay > y) != (by > y)
            inside ^= crossed & (x < (bx - ax) * (y - ay) / (by - ay) + ax)
    return np.where(inside, -far, far)


def _to_lines(x, y, lines):
    """The distances of points to the nearest of some lines (N, 4)."""
    x, y = x[..., None], y[..., None]
    ax, ay, bx, by = lines.T
    dx, dy = bx - ax, by - ay
    along = ((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy)
    along = np.clip(along, 0, 1)
    return np.hypot(x - ax - along * dx, y - ay - along * dy).min(-1)


@lru_cache
def _corners(shape):
    if shape == "square":
        points = [(-0.85, -0.85), (0.85, -0.85), (0.85, 0.85), (-0.85, 0.85)]
    elif shape == "triangle":
        points = [(0, -0.95), (1, 0.8), (-1, 0.8)]
    else:
        turns = [(1.1 - 0.64 * (at % 2), math.pi * at / 5) for at in range(10)]
        points = [(far * math.sin(turn), -far * math.cos(turn)) for far, turn in turns]
    return np.array(points, np.float32)


def _arc(x, y, width, height, begin, end):
    """Points of an ellipse, from one angle to another, in degrees clockwise from the right."""
    turns = np.radians(np.linspace(begin, end, 2 + abs(end - begin) // 30))
    return [(x + width * math.cos(turn), y + height * math.sin(turn)) for turn in turns]


@lru_cache
def _strokes(digit):
    """The lines (N, 4) of a digit, which is about 1.2 wide and 2 high."""
    upper, lower = (0, -0.45, 0.48, 0.45), (0, 0.4, 0.55, 0.5)
    drawn = {
        "0": [_arc(0, 0, 0.55, 0.9, 0, 360)],
        "1": [[(-0.3, -0.55), (0.08, -0.9), (0.08, 0.9)]],
        "2": [[*_arc(0, -0.4, 0.5, 0.5, 190, 390), (-0.55, 0.9), (0.55, 0.9)]],
        "3": [[*_arc(*upper, 210, 450), *_arc(*lower, 280, 510)]],
        "4": [[(0.25, 0.9), (0.25, -0.9), (-0.6, 0.35), (0.6, 0.35)]],
        "5": [[(0.5, -0.9), (-0.4, -0.9), (-0.45, -0.1), *_arc(0, 0.33, 0.55, 0.57, 230, 510)]],
        "6": [[(0.35, -0.9), *_arc(0, 0.35, 0.55, 0.55, 200, -160)]],
        "7": [[(-0.55, -0.9), (0.55, -0.9), (-0.15, 0.9)]],
        "8": [_arc(*upper, 0, 360), _arc(*lower, 0, 360)],
        "9": [[(-0.35, 0.9), *_arc(0, -0.35, 0.55, 0.55, 20, -340)]],
    }[digit]
    lines = [[*a, *b] for line in drawn for a, b in pairwise(line)]
    return np.array(lines, np.float32)


def labels(scene, grid):
    """What grid * grid patches show in their middles: kinds and colours, of which 0 is ground."""
    made = np.zeros((2, grid, grid), np.int32)
    at = (np.arange(grid, dtype=np.float32) + 0.5) / grid
    for thing in scene.things:
        over = np.hypot(at[None, :] - thing.x, at[:, None] - thing.y) < thing.radius
        made[0][over] = 1 + KINDS.index(thing.kind)
        made[1][over] = 1 + list(COLOURS).index(thing.colour)
    return made.reshape(2, -1)
