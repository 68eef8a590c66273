"""A9: an offset is one record for ever, no offset is left out, and every acknowledged message is in the stream."""

from __future__ import annotations

from collections import defaultdict

from tests.jepsen.check_delivery import sending
from tests.jepsen.excuse import Excuses
from tests.jepsen.ledger import Ledger, Publication, matches
from tests.jepsen.verdict import Verdict

__all__ = ["check_stream"]

Record = tuple[str, str, str]  # topic, value, publisher


def check_stream(ledger: Ledger, excuses: Excuses, verdict: Verdict) -> None:
    """Judge every page that was read."""
    known: dict[tuple[int, int], Record] = {}
    for page in ledger.records:
        if page["status"] == 200:
            read_page(ledger, verdict, page, known)
    whole = ledger.phases.get("final")
    if whole is None:
        return
    ends: dict[int, dict[str, int]] = defaultdict(dict)
    for page in ledger.records:
        if page["sent"] >= whole and page["status"] == 200:
            ends[page["partition"]][page["node"]] = page["end"]
    for partition, by_node in ends.items():
        verdict.judge("A9")
        if len(set(by_node.values())) > 1:
            verdict.find("A9", "nodes differ", whole, f"partition {partition} ends at the end of the run at {by_node}")
    complete(ledger, excuses, verdict, whole)


def read_page(ledger: Ledger, verdict: Verdict, page: dict[str, object], known: dict[tuple[int, int], Record]) -> None:
    """A page has every offset from where it begins, and the records that others have read there."""
    partition, expected, at = page["partition"], page["from"], page["t"]
    records = page["records"]
    assert isinstance(partition, int)
    assert isinstance(expected, int)
    assert isinstance(at, int)
    assert isinstance(records, list)
    for offset, topic, value, publisher in records:
        verdict.judge("A9")
        where = f"{partition}:{offset} at {page['node']}"
        if offset != expected:
            verdict.find("A9", "gap", at, f"{where} follows {expected - 1}")
        expected = offset + 1
        record = (topic, value, publisher)
        before = known.setdefault((partition, offset), record)
        if before != record:
            verdict.find("A9", "offset changed", at, f"{where} is {record}, and was {before}")
        message = ledger.publications.get(value)
        verdict.judge("A2")
        if message is None or message.topic != topic or message.client != publisher:
            verdict.find("A2", "record never published", at, f"{where} is {record}")


def complete(ledger: Ledger, excuses: Excuses, verdict: Verdict, whole: int) -> None:
    """What is in the stream at the end: each acknowledged message, none more often than it was sent, in order."""
    final: dict[int, dict[int, Record]] = defaultdict(dict)
    for page in ledger.records:
        if page["sent"] >= whole and page["status"] == 200:
            for offset, *record in page["records"]:
                final[page["partition"]].setdefault(offset, (record[0], record[1], record[2]))
    if not final:
        return
    counts: dict[str, int] = defaultdict(int)
    newest: dict[tuple[str, str, int], Publication] = {}
    for records in final.values():
        for offset in sorted(records):
            value = records[offset][1]
            counts[value] += 1
            message = ledger.publications.get(value)
            if message is not None and counts[value] == 1:
                in_order(excuses, verdict, message, newest, whole)
    for message in ledger.publications.values():
        if not matches(ledger.run["stream"], message.topic):
            continue
        count = counts[message.value]
        most = 1 if message.qos == 2 else len(message.sends)
        if message.is_acknowledged:
            verdict.judge("A9")
            if not count:
                text = f"{message.value} ({message.topic}, QoS {message.qos}); sent {sending(ledger, message)}"
                verdict.find("A9", "in no stream", message.sent, text)
        if count > most:
            text = f"{message.value} is there {count} times; QoS {message.qos}, sent {sending(ledger, message)}"
            verdict.find("A9", "record twice", message.sent, text, excuses.record_twice(message))


def in_order(
    excuses: Excuses, verdict: Verdict, message: Publication, newest: dict[tuple[str, str, int], Publication], at: int
) -> None:
    """A3 in the stream."""
    key = (message.client, message.topic, message.qos)
    before = newest.get(key)
    verdict.judge("A3")
    if before is None or before.seq < message.seq:
        newest[key] = message
    else:
        text = f"{message.value} is behind {before.value} in the stream, {message.topic}, QoS {message.qos}"
        verdict.find("A3", "overtaken in the stream", message.sent, text, excuses.order(message, before, at))
