"""The checked options of the source `folkmoot`, and where a read begins and ends. Asks the nodes."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from folkmoot.client.position import EARLIEST, LATEST
from folkmoot.client.streams import PartitionRange, StreamClient
from pyspark_folkmoot.column import COLUMNS
from pyspark_folkmoot.offset import Offsets
from pyspark_folkmoot.option import Options, Places

__all__ = ["Plan"]

VALID: Final = (
    "url",
    "stream",
    "table",
    "token",
    "startingOffsets",
    "startingTimestamp",
    "endingOffsets",
    "endingTimestamp",
    "maxRecordsPerTrigger",
    "minPartitions",
    "failOnDataLoss",
    "topicPrefix",
    "partitions",
    "columns",
    "patienceSeconds",
)

PATIENCE_S: Final = 120
RANGES_AGE_S: Final = 0.05
"""Spark asks for the end of an idle stream every 10 ms; the node is asked at most every 50 ms."""


COPIES_AGE_S: Final = 30.0
"""Copies move when nodes join or leave; a node without a copy forwards the request."""


class Plan:
    """One read of a stream: its checked options, where it begins and ends, and the client with which it asks the nodes.

    The options never change. It is sent to the tasks without the client and what the nodes have answered.
    """

    def __init__(self, given: Mapping[str, str]) -> None:
        options = Options("folkmoot", given, VALID)
        self.options = options
        self.urls = options.urls("url")
        self.stream = options.required("stream")
        self.token = options.text("token")
        self.patience_s = options.integer("patienceSeconds", 0)
        self.starting = options.places("startingOffsets", (EARLIEST, LATEST))
        self.starting_us = options.time("startingTimestamp")
        self.ending = options.places("endingOffsets", (LATEST,))
        self.ending_us = options.time("endingTimestamp")
        options.exclude("startingOffsets", "startingTimestamp")
        options.exclude("endingOffsets", "endingTimestamp")
        self.rows_max = options.integer("maxRecordsPerTrigger", 1)
        self.tasks_min = options.integer("minPartitions", 1) or 1
        self.fail_on_data_loss = options.boolean("failOnDataLoss", True)
        self.topic_prefix = options.text("topicPrefix")
        self.columns = options.columns("columns", COLUMNS)
        self.only = options.numbers("partitions")
        self.said: set[str] = set()  # accepted losses, each logged once
        self._client: StreamClient | None = None
        self._ranges: list[PartitionRange] = []
        self._ranges_at = 0.0
        self._copies: dict[int, list[str]] = {}
        self._copies_at = 0.0

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_ranges": [], "_copies": {}}

    def client(self, first: int = 0) -> StreamClient:
        """Return the client of this process; a new one begins with the node number `first`."""
        if self._client is None:
            patience_s = PATIENCE_S if self.patience_s is None else self.patience_s
            self._client = StreamClient(self.urls, self.token, patience_s, first)
        return self._client

    def ranges(self, fresh: bool = False, known: Offsets | None = None) -> list[PartitionRange]:
        """Return the ranges of the chosen stream partitions, at most RANGES_AGE_S old.

        known: ends that they had before. A node on the smaller side of a split may not know them: then other nodes are
        asked, within the patience, before OffsetAhead is raised.
        """
        if fresh or not self._ranges or time.monotonic() - self._ranges_at > RANGES_AGE_S or self._behind(known):
            found = self.client().describe_known(self.stream, known or {}).ranges
            if self.only is not None:
                there = {part.partition for part in found}
                for partition in self.only:
                    if partition not in there:
                        why = f"names {partition}: stream {self.stream} has partitions 0 to {len(found) - 1}"
                        raise self.options.wrong("partitions", why)
                found = [part for part in found if part.partition in self.only]
            self._ranges = found
            self._ranges_at = time.monotonic()
        return self._ranges

    def _behind(self, known: Offsets | None) -> bool:
        return known is not None and any(part.next < known.get(part.partition, 0) for part in self._ranges)

    def copies(self) -> dict[int, list[str]]:
        """Return which nodes have each stream partition on their disks, as far as they report it."""
        if len(self.urls) > 1 and time.monotonic() - self._copies_at > COPIES_AGE_S:
            self._copies = self.client().copies(self.stream)
            self._copies_at = time.monotonic()
        return self._copies

    def ends(self, fresh: bool = False) -> Offsets:
        """Return the end of each stream partition."""
        return {part.partition: part.next for part in self.ranges(fresh)}

    def start(self, default: str) -> Offsets:
        """Return where the read begins; `default` is `earliest` or `latest`."""
        if self.starting_us is not None:
            return self.at_time(self.starting_us)
        return self._places("startingOffsets", self.starting or default)

    def end(self) -> Offsets:
        """Return where a batch read ends, never beyond the end of the stream."""
        ends = self.ends(fresh=True)
        asked = ends
        if self.ending_us is not None:
            asked = self.at_time(self.ending_us)
        elif isinstance(self.ending, dict):
            asked = self._places("endingOffsets", self.ending)
            for partition, offset in asked.items():
                if offset > ends[partition]:
                    why = f"asks for {offset} of partition {partition}, which ends at {ends[partition]}"
                    raise self.options.wrong("endingOffsets", why)
        return asked

    def at_time(self, time_us: int) -> Offsets:
        """Return the first offset at or after this broker time in each stream partition, or the end without one."""
        found = self.client().offsets(self.stream, time_us)
        return {part.partition: found[part.partition] for part in self.ranges()}

    def _places(self, name: str, places: Places) -> Offsets:
        ranges = self.ranges()
        if places == EARLIEST:
            return {part.partition: part.oldest for part in ranges}
        if not isinstance(places, dict):
            return {part.partition: part.next for part in ranges}
        wanted = sorted(part.partition for part in ranges)
        if sorted(places) != wanted:
            why = f"has partitions {sorted(places)}: it must have exactly {wanted}"
            raise self.options.wrong(name, why)
        return places

    def close(self) -> None:
        """Close the connections of this process."""
        if self._client is not None:
            self._client.close()
            self._client = None
