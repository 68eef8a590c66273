"""The subscription tree: finds the values of all filters that match a topic name.

Owns a set of (filter, value) pairs. Never interprets a value or checks a filter (see `name`).

A filter without wildcards matches only the equal topic, so a dictionary holds all of those, and the trie holds only
filters with wildcards. Loops walk the trie, not recursion: a filter may have 32,768 levels. The callers bound the size:
they limit the subscriptions of a session and the levels of a filter.
"""

from __future__ import annotations

from typing import Final

from folkmoot.topics.name import has_wildcard

__all__ = ["Tree", "Walk"]

DOLLAR: Final = 0x24

_NO_END: Final = 1 << 60


class Branch:
    """A node of the trie: one level of one or more filters with wildcards.

    `children`: literal next levels; `plus`: the next level `+`; `values`: of the filter that ends at this level;
    `tail`: of the filter whose next and last level is `#`. All are None until they are needed, which keeps a deep
    filter small. The value dictionaries are those of `Tree.filters`.
    """

    def __init__(self) -> None:
        self.children: dict[bytes, Branch] | None = None
        self.plus: Branch | None = None
        self.values: dict[object, None] | None = None
        self.tail: dict[object, None] | None = None

    def is_empty(self) -> bool:
        """Return whether no filter passes through or ends at this branch."""
        return self.children is None and self.plus is None and self.values is None and self.tail is None


class Walk:
    """A look-up that can be interrupted: the branches still to be visited, and what was found.

    visited: the number of branches until now. With k filters of d levels there are at most k * d, and for a filter set
    like {a,+}/{a,+}/... twice as many with each level.
    """

    def __init__(self, root: Branch, topic: bytes, found: list[object]) -> None:
        self.found = found
        self.visited = 0
        self.is_done = False
        self._levels = topic.split(b"/")
        # [MQTT-4.7.2-1] a leading wildcard does not match a topic that begins with $: skip both at the first level.
        self._skip = topic[0] == DOLLAR
        self._waiting: list[tuple[Branch, int]] = [(root, 0)]

    def go(self, branches: int) -> bool:
        """Visit at most this many further branches; return whether that was all. Depth first, no recursion."""
        if self.is_done:
            return True
        levels = self._levels
        found = self.found
        waiting = self._waiting
        last = len(levels)
        skip = self._skip
        branch: Branch | None = None
        i = 0
        left = branches
        while True:
            if branch is None:
                if not waiting:
                    break
                branch, i = waiting.pop()
            if left <= 0:
                waiting.append((branch, i))
                break
            left -= 1
            # Before the check for the last level: `#` matches its parent level, too (section 4.7.1.2).
            if branch.tail is not None and not skip:
                found.extend(branch.tail)
            if i == last:
                if branch.values is not None:
                    found.extend(branch.values)
                branch = None
                continue
            plus = None if skip else branch.plus
            skip = False
            branch = None if branch.children is None else branch.children.get(levels[i])
            i += 1
            if plus is not None:
                if branch is None:
                    branch = plus
                else:
                    waiting.append((plus, i))
        self._skip = skip
        self.visited += branches - left
        self.is_done = not waiting
        return self.is_done


class Tree:
    """Filters with their values; values are compared as dictionary keys and kept in order of insertion."""

    def __init__(self) -> None:
        self.filters: dict[bytes, dict[object, None]] = {}
        self.root = Branch()
        self.wildcards = 0
        self.count = 0
        self.visited = 0  # branches of the last `match`

    def __len__(self) -> int:
        """Return the number of (filter, value) pairs."""
        return self.count

    def __repr__(self) -> str:
        return f"Tree(filters={len(self.filters)}, wildcards={self.wildcards}, values={self.count})"

    def add(self, topic_filter: bytes, value: object) -> bool:
        """Add `value` to a valid filter; return whether it is its first. Adding a known pair changes nothing."""
        values = self.filters.get(topic_filter)
        if values is not None:
            if value not in values:
                values[value] = None
                self.count += 1
            return False
        values = {value: None}
        self.filters[topic_filter] = values
        self.count += 1
        if has_wildcard(topic_filter):
            self.wildcards += 1
            self.grow(topic_filter, values)
        return True

    def remove(self, topic_filter: bytes, value: object) -> bool:
        """Remove `value` from a filter; return whether it was its last. Removing an unknown pair changes nothing."""
        values = self.filters.get(topic_filter)
        if values is None or value not in values:
            return False
        del values[value]
        self.count -= 1
        if values:
            return False
        del self.filters[topic_filter]
        if has_wildcard(topic_filter):
            self.wildcards -= 1
            self.prune(topic_filter)
        return True

    def match(self, topic: bytes) -> list[object]:
        """Return the values of all filters that match a valid topic name, each once per filter that has it.

        The filter equal to the topic comes first, then those with wildcards in the order of the walk: `#` before deeper
        levels, literal levels before `+`. Within a filter: order of insertion. So the order depends only on the calls.
        """
        found: list[object] = []
        values = self.filters.get(topic)
        if values is not None:
            found.extend(values)
        if self.wildcards > 0:
            walk = Walk(self.root, topic, found)
            walk.go(_NO_END)
            self.visited = walk.visited
        else:
            self.visited = 0
        return found

    def walk(self, topic: bytes) -> Walk:
        """Begin to look for a topic name in steps: `Walk.found` has what `match` returns when `Walk.go` returns True.

        The tree may change meanwhile: the result has what was in the tree all the time, and may have what was not.
        """
        found: list[object] = []
        values = self.filters.get(topic)
        if values is not None:
            found.extend(values)
        walk = Walk(self.root, topic, found)
        walk.is_done = self.wildcards == 0
        return walk

    def values(self, topic_filter: bytes) -> list[object]:
        """Return the values of exactly this filter, in order of insertion; empty for an unknown filter."""
        values = self.filters.get(topic_filter)
        return [] if values is None else list(values)

    def items(self) -> list[tuple[bytes, object]]:
        """Return all (filter, value) pairs: filters, and the values of each, in order of insertion."""
        pairs: list[tuple[bytes, object]] = []
        for topic_filter, values in self.filters.items():
            pairs.extend([(topic_filter, value) for value in values])
        return pairs

    def grow(self, topic_filter: bytes, values: dict[object, None]) -> None:
        """Create the branches of a new filter and attach `values` to its end."""
        branch = self.root
        levels = topic_filter.split(b"/")
        last = len(levels) - 1
        for i in range(last + 1):
            level = levels[i]
            if level == b"#":
                assert i == last, "# is not the last level"
                branch.tail = values
                return
            branch = step(branch, level)
        branch.values = values

    def prune(self, topic_filter: bytes) -> None:
        """Remove a filter that lost its last value, and from its end upwards each branch that became empty."""
        levels = topic_filter.split(b"/")
        if levels[-1] == b"#":
            levels.pop()
            path = self.path(levels)
            path[-1].tail = None
        else:
            path = self.path(levels)
            path[-1].values = None
        for i in range(len(levels) - 1, -1, -1):
            if not path[i + 1].is_empty():
                return
            cut(path[i], levels[i])

    def path(self, levels: list[bytes]) -> list[Branch]:
        """Return the branches from the root along `levels`, which must exist: one more than there are levels."""
        branch = self.root
        path = [branch]
        for level in levels:
            branch = step(branch, level)
            path.append(branch)
        return path


def step(branch: Branch, level: bytes) -> Branch:
    """Return the child branch for a level that is not `#`; create it if it does not exist."""
    if level == b"+":
        if branch.plus is None:
            branch.plus = Branch()
        return branch.plus
    children = branch.children
    if children is None:
        children = {}
        branch.children = children
    child = children.get(level)
    if child is None:
        child = Branch()
        children[level] = child
    return child


def cut(branch: Branch, level: bytes) -> None:
    """Remove the child branch for a level, and the dictionary of children if it becomes empty."""
    if level == b"+":
        branch.plus = None
        return
    children = branch.children
    assert children is not None, "a branch must be a child of its parent"
    del children[level]
    if not children:
        branch.children = None
