"""An order in which everything comes after what it needs, or the cycle that there is."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence


class Cycle(ValueError):
    """Things that need each other.

    Attributes:
        members: their indices; each needs the next, the last the first.
    """

    def __init__(self, members: list[int]) -> None:
        super().__init__(members)
        self.members = members


def ordered(needs: Sequence[Sequence[int]]) -> list[int]:
    """Return indices, each after those that it needs, and otherwise as they are given.

    Args:
        needs: the indices that each needs.

    Raises:
        Cycle: there is no such order.
    """
    waiting = [len(set(each)) for each in needs]
    users: list[list[int]] = [[] for _ in needs]
    for index, each in enumerate(needs):
        for needed in set(each):
            users[needed].append(index)
    ready = [index for index, count in enumerate(waiting) if not count]
    found = []
    while ready:
        index = heapq.heappop(ready)
        found.append(index)
        for user in users[index]:
            waiting[user] -= 1
            if not waiting[user]:
                heapq.heappush(ready, user)
    if len(found) < len(needs):
        raise Cycle(_cycle(dict(enumerate(needs)), set(range(len(needs))) - set(found)))
    return found


def _cycle(needs: Mapping[int, Sequence[int]], left: set[int]) -> list[int]:
    """Return a cycle among those of which each needs another of them."""
    path = [min(left)]
    places = {path[0]: 0}
    while True:
        following = next(index for index in needs[path[-1]] if index in left)
        if following in places:
            return path[places[following] :]
        places[following] = len(path)
        path.append(following)
