"""Server Reference and Response Information, told to version 5 clients as configured (MQTT 5 sections 4.11, 4.10.1)."""

from __future__ import annotations

from folkmoot.mqtt.packet import V311, Disconnect
from tests.harness.fixture import MakeBox

ELSEWHERE = "other.example:1883"


def test_a_full_node_names_another_one_in_connack(make: MakeBox) -> None:
    box = make(limits={"connections_max": 2}, server_reference=ELSEWHERE)
    box.client("a").connect()  # beside the bystander
    refused = box.client("b").connect(code=0x9C)
    assert refused.properties is not None
    assert refused.properties.server_reference == ELSEWHERE
    box.client("c", V311).connect(code=3)


def test_a_full_node_that_knows_no_other_is_busy(make: MakeBox) -> None:
    box = make(limits={"connections_max": 2})
    box.client("a").connect()
    refused = box.client("b").connect(code=0x89)
    assert refused.properties is not None
    assert refused.properties.server_reference is None


def test_a_node_that_stops_names_another_one_in_disconnect(make: MakeBox) -> None:
    box = make(server_reference=ELSEWHERE)
    peer = box.client("a")
    peer.connect()
    box.stop()
    last = peer.expect(Disconnect)
    assert last.code == 0x9C
    assert last.properties is not None
    assert last.properties.server_reference == ELSEWHERE


def test_who_asks_is_told_where_answers_go(make: MakeBox) -> None:
    box = make(response_information="answers/%c")
    asked = box.client("a").connect(request_response=1)
    assert asked.properties is not None
    assert asked.properties.response_info == "answers/a"
    silent = box.client("b").connect()
    assert silent.properties is not None
    assert silent.properties.response_info is None
