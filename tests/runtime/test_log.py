from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator

from folkmoot.kernel.clock import SECOND
from folkmoot.kernel.event import ERROR, INFO, WARNING, Event
from folkmoot.runtime.log import VALUE_CHARACTERS_MAX, Log
from folkmoot.runtime.loglimit import BURST

NOW = 1_700_000_000_123_456


def lines(form: str, *events: Event, level: str = "info", now: int = NOW) -> list[str]:
    stream = io.StringIO()
    Log(level, form, stream).write_all(events, now)
    return stream.getvalue().splitlines()


def test_a_line_of_text_has_time_level_kind_and_fields() -> None:
    event = Event(WARNING, "protocol_error", {"client": "c1", "code": 0x81, "why": "no such topic", "ok": False})
    assert lines("text", event) == [
        '2023-11-14T22:13:20.123Z WARNING protocol_error client=c1 code=129 why="no such topic" ok=no'
    ]


def test_a_line_of_json_has_the_same() -> None:
    event = Event(ERROR, "storage_full", {"why": "disk", "free": 5, "raw": b"a\xffb"})
    (line,) = lines("json", event)
    assert json.loads(line) == {
        "time": "2023-11-14T22:13:20.123Z",
        "level": "error",
        "event": "storage_full",
        "why": "disk",
        "free": 5,
        "raw": "a�b",
    }


def test_what_a_client_says_cannot_make_a_line_of_its_own() -> None:
    nasty = 'x"\n2023-11-14T22:13:20Z ERROR forged \x1b[2J level=info'
    for form in ("text", "json"):
        (line,) = lines(form, Event(INFO, "connected", {"client": nasty, "empty": "", "equals": "a=b"}))
        assert "\x1b" not in line
        assert '=""' in line or '"empty":""' in line


def test_long_values_are_cut() -> None:
    (line,) = lines("text", Event(INFO, "connected", {"client": "c" * 100_000}))
    assert len(line) < VALUE_CHARACTERS_MAX + 100


def test_less_important_events_are_left_out() -> None:
    events = [Event(INFO, "a", {}), Event(WARNING, "b", {}), Event(ERROR, "c", {})]
    assert [line.split()[2] for line in lines("text", *events, level="warning")] == ["b", "c"]


def test_a_flood_of_one_kind_is_counted_instead_of_written() -> None:
    stream = io.StringIO()
    log = Log("info", "json", stream)
    for number in range(10_000):
        log.say("warning", "protocol_error", NOW + number)
        if number == 5_000:
            log.say("info", "stopped", NOW + number)
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [entry["event"] for entry in found] == ["protocol_error"] * BURST + ["stopped"]
    log.say("warning", "protocol_error", NOW + SECOND)
    assert json.loads(stream.getvalue().splitlines()[-1])["skipped"] == 10_000 - BURST
    for number in range(1000):
        log.say("warning", "protocol_error", NOW + 100 * SECOND + number)
    assert len(stream.getvalue().splitlines()) == BURST + 2 + BURST, "patience does not add up to more than a burst"


def test_a_log_that_nobody_reads_stops_nothing() -> None:
    stream = io.StringIO()
    log = Log("info", "text", stream)
    stream.close()
    log.say("info", "connected", NOW)


def contents(descriptor: int) -> Iterator[bytes]:
    while True:
        try:
            yield os.read(descriptor, 65_536)
        except BlockingIOError:
            return


def test_a_reader_that_has_stopped_stops_nobody() -> None:
    """A full pipe would make the next write wait, and with it the node."""
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as stream:
        log = Log("info", "json", stream)
        for number in range(2_000):
            log.say("info", f"kind{number}", NOW, what="x" * 300)
        os.set_blocking(read, False)
        held = b"".join(contents(read))
        log.say("info", "back", NOW)
        said = [json.loads(line) for line in (held + os.read(read, 65_536)).splitlines()]
    os.close(read)
    whole = [line["event"] for line in said]
    assert whole[:3] == ["kind0", "kind1", "kind2"]
    assert whole[-2:] == ["log_lost", "back"]
    assert len(said) - 2 + said[-2]["lines"] == 2_000, "every line is written or counted"


def test_a_line_is_not_longer_than_what_a_ready_pipe_takes() -> None:
    read, write = os.pipe()
    with os.fdopen(write, "w", encoding="utf-8") as stream:
        Log("info", "text", stream).say("info", "a", NOW, **{f"field{n}": "\N{PILE OF POO}" * 1000 for n in range(9)})
        assert len(os.read(read, 1 << 20)) <= 4096
    os.close(read)


def test_lists_and_counts_are_arrays_and_objects_in_json() -> None:
    fields: dict[str, object] = {"members": ["n1", "n2"], "none": [], "dropped": {"too old": 2}, "expiry_s": None}
    (line,) = lines("json", Event(INFO, "view_installed", fields))
    assert {name: value for name, value in json.loads(line).items() if name in fields} == fields


def test_lists_and_counts_are_words_in_text() -> None:
    fields: dict[str, object] = {"members": ["n1", "n2"], "one": ["n1"], "none": [], "dropped": {"too old": 2}}
    (line,) = lines("text", Event(INFO, "view_installed", {**fields, "expiry_s": None}))
    assert line.endswith('members="n1, n2" one=n1 none=none dropped="too old 2" expiry_s=none')


def test_a_field_cannot_take_the_place_of_time_level_or_event() -> None:
    (line,) = lines("json", Event(INFO, "overloaded", {"level": 7, "time": 1, "event": "other"}))
    found = json.loads(line)
    assert (found["level"], found["event"], found["time"][:4]) == ("info", "overloaded", "2023")


def test_long_lists_are_cut() -> None:
    (line,) = lines("json", Event(INFO, "view_installed", {"members": [f"n{number}" for number in range(1000)]}))
    members = json.loads(line)["members"]
    assert members[:2] == ["n0", "n1"]
    assert members[-1] == "..."


def test_a_line_of_json_that_would_be_too_long_is_json_all_the_same() -> None:
    fields: dict[str, object] = {f"f{n}": [f"\N{PILE OF POO}{i}" * 100 for i in range(100)] for n in range(5)}
    (line,) = lines("json", Event(INFO, "view_due", fields))
    found = json.loads(line)
    assert len(line.encode()) < 4096
    assert all(isinstance(found[name], list) for name in fields)


def test_what_an_address_floods_hides_nothing_of_the_others() -> None:
    stream = io.StringIO()
    log = Log("info", "json", stream)
    for number in range(10_000):
        log.say("warning", "refused", NOW + number, address=f"10.0.0.1:{number}")
        if number % 1000 == 0:
            log.say("warning", "refused", NOW + number, address=f"10.0.0.{2 + number // 1000}:1883")
    found = [json.loads(line)["address"].partition(":")[0] for line in stream.getvalue().splitlines()]
    assert found.count("10.0.0.1") == BURST
    assert sorted(set(found)) == sorted(f"10.0.0.{number}" for number in range(1, 12))


def test_what_was_suppressed_is_said_even_if_nothing_of_its_kind_follows() -> None:
    stream = io.StringIO()
    log = Log("info", "json", stream)
    for number in range(1000):
        log.say("warning", "refused", NOW, address=f"10.0.0.{number % 2}:{number}", user="ann")
    written = len(stream.getvalue().splitlines())
    log.report_suppressed(NOW + SECOND)
    assert len(stream.getvalue().splitlines()) == written, "a line of its kind may follow"
    log.report_suppressed(NOW + 60 * SECOND)
    log.report_suppressed(NOW + 120 * SECOND)
    (summary,) = [json.loads(line) for line in stream.getvalue().splitlines()[written:]]
    assert (summary["event"], summary["what"], summary["addresses"]) == ("log_suppressed", "refused", 2)
    assert summary["lines"] == log.suppressed == 1000 - written


def test_another_reader_gets_everything() -> None:
    log = Log("error", "json", io.StringIO())
    found: list[Event] = []
    log.also = lambda events, _now: found.extend(events)
    log.write_all([Event(INFO, "connected", {})] * 100, NOW)
    assert len(found) == 100
