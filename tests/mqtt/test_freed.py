"""Freeing what ends a deep chain of containers changes no other memory.

CPython defers the deallocation of deep chains, and threads what it defers through headers that only objects known to
its garbage collector have. Compiled classes marked `acyclic` have none, and mypyc (2.4) defers them all the same: eight
bytes in front of the object are overwritten. So no class is marked.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

FREE = """
from folkmoot.mqtt.packet import Properties, Publish
from folkmoot.store.message import Message

MAKE = {
    "Properties": Properties,
    "Publish": lambda: Publish(b"t", b"m"),
    "Message": lambda: Message(b"t", b"m", 0, False, b"", "a", 0, 0),
}

for depth in range(130):
    made = [MAKE["%s"]() for _ in range(3)]
    for _ in range(depth):
        made = [made]
    del made
print("alive")
"""


@pytest.mark.parametrize("name", ["Properties", "Publish", "Message"])
def test_an_object_at_the_end_of_a_deep_chain_is_freed_and_nothing_else_is_touched(name: str) -> None:
    environment = {**os.environ, "PYTHONMALLOC": "debug"}  # looks at the bytes around each object that is freed
    done = subprocess.run(
        [sys.executable, "-c", FREE % name], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout) == (0, "alive\n"), done.stderr[:1000]
