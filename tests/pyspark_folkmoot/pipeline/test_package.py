"""The code as it is sent to executors: complete, and read by a process that finds no other."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from folkmoot.streams.config import StreamConfig
from pyspark_folkmoot.pipeline.package import add_package
from pyspark_folkmoot.source import FolkmootStreams
from tests.harness.streamnode import Shelf, StreamNode

READ = """\
import pickle, sys
archive = sys.argv[1]
sys.path.insert(0, archive)
import folkmoot, pyspark_folkmoot, pyspark_folkmoot.delta_read, pyspark_folkmoot.delta_write, pyspark_folkmoot.sink
import pyspark_folkmoot.pipeline.decode, pyspark_folkmoot.pipeline.sink, pyspark_folkmoot.table
assert all(module.__file__.startswith(archive) for module in (folkmoot, pyspark_folkmoot)), folkmoot.__file__
reader, parts = pickle.loads(sys.stdin.buffer.read())
assert type(reader).__module__ == "pyspark_folkmoot.source"
assert sys.modules["pyspark_folkmoot.source"].__file__.startswith(archive)
print(sum(batch.num_rows for part in parts for batch in reader.read(part)))
"""


def test_a_process_reads_a_stream_with_the_archive_alone(tmp_path: Path) -> None:
    sent: list[str] = []
    spark: Any = SimpleNamespace(sparkContext=SimpleNamespace(addPyFile=sent.append))
    archive = add_package(spark)
    assert sent == [str(archive)]
    with StreamNode(Shelf(StreamConfig("s", b"s/#", 3))) as node:
        node.publish("s/a", [b"%d" % number for number in range(70)])
        node.publish("s/b", [b"%d" % number for number in range(30)])
        source = FolkmootStreams({"url": node.url, "stream": "s"})
        reader = source.reader(source.schema())
        task = pickle.dumps((reader, list(reader.partitions())))
        # -E: no PYTHONPATH
        words = [sys.executable, "-E", "-c", READ, str(archive)]
        done = subprocess.run(words, input=task, capture_output=True, cwd=tmp_path, check=False)
    assert done.stderr.decode() == ""
    assert int(done.stdout) == 100
