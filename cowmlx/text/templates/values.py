"""The values that templates work on: their size, their text, their items.

Values form a closed set: what JSON has, tuples, ranges and views of objects; jinja2's undefined
values, namespaces, macros and loops; and the three classes below. Lists and objects never change,
but may hold a value many times over, so that a small structure has a huge text: what is charged
is always the size as a tree.
"""

from __future__ import annotations

import itertools

from jinja2.runtime import LoopContext, Macro, Undefined
from jinja2.utils import Namespace

from cowmlx.text.templates.arguments import Arguments
from cowmlx.text.templates.budget import MAX_NESTING, Budget, OverBudget

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import Any

NUMBERS = (int, float, complex)
_EMPTY: dict[str, int] = {}
KEYS, VALUES, ITEMS = type(_EMPTY.keys()), type(_EMPTY.values()), type(_EMPTY.items())
VIEWS = (KEYS, VALUES, ITEMS)
CONTAINERS = (list, tuple, dict, *VIEWS, Namespace)
SIZED = (str, list, tuple, dict, range, *VIEWS, Undefined)
# What an item of a container takes, with a small value that is made for it.
ITEM_BYTES = 96
ENTRY_BYTES = 2 * ITEM_BYTES
SLOT_BYTES = 8
# An object of a few fields, such as a method or an undefined value; one with a dictionary or a
# generator, such as a namespace, a loop, or a filter that gives item by item.
OBJECT_BYTES = 256
LARGE_OBJECT_BYTES = 1024
_MAX_CHAIN = 50


class Operation:
    """A function or a method that templates may call; its first argument is the budget."""

    __slots__ = ("_owner", "_run", "name")

    def __init__(self, name: str, run: Callable[..., Any], *owner: Any) -> None:
        self.name = name
        self._run = run
        self._owner = owner

    def __call__(self, budget: Budget, /, *args: Any, **kwargs: Any) -> Any:
        """Carry it out."""
        return self._run(budget, *self._owner, *args, **kwargs)

    def __repr__(self) -> str:
        return f"<function {self.name}>"


class Stream:
    """What filters give that work item by item; like a generator it is true and has no length."""

    __slots__ = ("_budget", "_items", "links")

    def __init__(self, budget: Budget, items: Iterator[Any], source: Any = None) -> None:
        self.links: int = source.links + 1 if type(source) is Stream else 1
        if self.links > _MAX_CHAIN:
            raise OverBudget(f"the chat template chains more than {_MAX_CHAIN} filters")
        budget.make(LARGE_OBJECT_BYTES)
        self._budget = budget
        self._items = items

    def __iter__(self) -> Stream:
        return self

    def __next__(self) -> Any:
        self._budget.step()
        return next(self._items)

    def __repr__(self) -> str:
        return "<generator>"  # no address of this process


class Counted:
    """What a loop goes over, each item paid for; it has a length, as jinja2's loops ask for."""

    __slots__ = ("_budget", "_items", "_weight")

    def __init__(self, budget: Budget, items: Any, weight: int) -> None:
        self._budget = budget
        self._items = items
        self._weight = weight

    def __len__(self) -> int:
        return len(self._items)

    def __iter__(self) -> Iterator[Any]:
        step, weight = self._budget.step, self._weight
        for item in self._items:
            step(weight)
            yield item


def type_name(value: object) -> str:
    """Return the name of a value's type as messages give it."""
    return "generator" if type(value) is Stream else type(value).__name__


def unit(text: str) -> int:
    """Return the bytes that a character of a text takes at most."""
    return 1 if text.isascii() else 4


def size_of(text: str) -> int:
    """Return the bytes that a text takes at most, the object itself left aside."""
    return len(text) * unit(text)


def is_plain_key(key: object) -> bool:
    """Tell whether a key's hash cannot be chosen so that many keys collide."""
    return isinstance(key, (str, float, type(None))) or (
        isinstance(key, int) and 0 <= key < 1 << 60
    )


class Tree:
    """The size of a value as a tree: its values, the characters in them, how deep it is."""

    __slots__ = ("characters", "depth", "is_ascii", "items")

    def __init__(self) -> None:
        self.items = 1
        self.characters = 0
        self.depth = 0
        self.is_ascii = True

    def _count(self, value: Any) -> None:
        if isinstance(value, str):
            self.characters += len(value)
            self.is_ascii = self.is_ascii and value.isascii()
        elif isinstance(value, int):
            self.characters += value.bit_length() // 3
        elif isinstance(value, Arguments):
            self._count(str(value))

    def text_bytes(self) -> int:
        """Return the bytes that the value's text takes at most."""
        return 64 * self.items + self.characters * (4 if self.is_ascii else 16)


def measure(budget: Budget, value: Any) -> Tree:
    """Measure a value, paying for each one in it.

    Raises:
        OverBudget: it is too large, or nested too deeply.
    """
    tree = Tree()
    tree._count(value)
    if not isinstance(value, CONTAINERS):
        return tree
    open_ones = [_children(budget, value)]
    while open_ones:
        for item in open_ones[-1]:
            tree.items += 1
            if isinstance(item, CONTAINERS):
                if len(open_ones) >= MAX_NESTING:
                    raise OverBudget(
                        f"the chat template nests values deeper than {MAX_NESTING} levels"
                    )
                open_ones.append(_children(budget, item))
                tree.depth = max(tree.depth, len(open_ones))
                break
            tree._count(item)
        else:
            open_ones.pop()
    budget.step(tree.characters >> 10)
    return tree


def _children(budget: Budget, value: Any) -> Iterator[Any]:
    if isinstance(value, Namespace):
        value = value._Namespace__attrs
    budget.step(1 + len(value))
    return itertools.chain(value.keys(), value.values()) if isinstance(value, dict) else iter(value)


def check_integer(budget: Budget, value: Any) -> None:
    """Make sure that a value is no integer too long to write."""
    if isinstance(value, int):
        budget.integer(value.bit_length())


def text(budget: Budget, value: Any) -> str:
    """Return the text of a value, as ``str`` makes it.

    Raises:
        OverBudget: it would be too long.
    """
    if type(value) is str:
        return value
    if isinstance(value, CONTAINERS):
        budget.reserve(measure(budget, value).text_bytes())
    elif isinstance(value, str):
        budget.reserve(len(value) * 4)
    elif isinstance(value, NUMBERS):
        check_integer(budget, value)
    elif not isinstance(value, (Undefined, Macro, LoopContext, range, type(None))):
        return f"<{type_name(value)}>"
    return budget.made(str(value))


def soft_text(budget: Budget, value: Any) -> str:
    """Return the text of a value; a string stays what it is, marked or not."""
    return value if isinstance(value, str) else text(budget, value)


def quoted(budget: Budget, value: Any, show: Callable[[Any], str] = repr) -> str:
    """Return what ``repr``, or ``ascii``, makes of a value."""
    if isinstance(value, (str, *CONTAINERS)):
        budget.reserve(measure(budget, value).text_bytes())
        return budget.made(show(value))
    if isinstance(value, NUMBERS):
        check_integer(budget, value)
    elif isinstance(value, Undefined):
        return "Undefined"
    elif not isinstance(value, (range, type(None))):
        return f"<{type_name(value)}>"
    return budget.made(show(value))


def iterate(budget: Budget, value: Any) -> Iterator[Any]:
    """Go over the items of a value, paying for each.

    Raises:
        TypeError: it has none.
    """
    return iter(loop_items(budget, value, 1))


def loop_items(budget: Budget, value: Any, weight: int) -> Iterable[Any]:
    """Wrap what a loop goes over, so that each item costs as many steps as ``weight``."""
    if isinstance(value, SIZED) or (type(value) is Stream and weight > 1):
        budget.make(OBJECT_BYTES)
        return Counted(budget, value, weight)
    if isinstance(value, (Counted, Stream)):
        return value
    raise TypeError(f"{type_name(value)!r} object is not iterable")


def listed(budget: Budget, value: Any) -> list[Any]:
    """Return the items of a value as a new list."""
    if isinstance(value, (list, tuple)):
        budget.make(64 + SLOT_BYTES * len(value))
        return list(value)
    if isinstance(value, SIZED):
        budget.reserve(ITEM_BYTES * len(value))
    items = []
    for item in iterate(budget, value):
        budget.make(ITEM_BYTES)
        items.append(item)
    return items


def pay_for_hash(budget: Budget, key: Any) -> None:
    """Pay for the hash of a key, and for comparing it with one that is equal."""
    if isinstance(key, str):
        budget.step(len(key) >> 10)
    elif isinstance(key, tuple):
        measure(budget, key)


def pay_for_entry(budget: Budget, key: Any, size: int) -> None:
    """Pay for a new key in a table of so many."""
    pay_for_hash(budget, key)
    budget.make(ENTRY_BYTES)
    if not is_plain_key(key):
        budget.step(size)


def new_dict(budget: Budget, pairs: Iterable[tuple[Any, Any]]) -> dict[Any, Any]:
    """Return an object of pairs."""
    budget.make(OBJECT_BYTES)
    made: dict[Any, Any] = {}
    for key, value in pairs:
        pay_for_entry(budget, key, len(made))
        made[key] = value
    return made
