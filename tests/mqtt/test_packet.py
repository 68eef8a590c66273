from __future__ import annotations

import pytest

from folkmoot.mqtt.error import MalformedPacket, malformed, protocol_error
from folkmoot.mqtt.kind import kind_name
from folkmoot.mqtt.packet import Ack, Pingreq, Pingresp, Publish, Suback, Unsuback
from tests.mqtt.cases import VALID


def test_packets_are_equal_by_type_and_fields() -> None:
    assert Publish(b"a", b"b") == Publish(b"a", b"b")
    assert Publish(b"a", b"b") != Publish(b"a", b"c")
    assert Suback(1, [0]) != Unsuback(1, [0])
    assert Pingreq() != Pingresp()
    assert Ack(4, 1) != (4, 1)


def test_packets_are_no_keys() -> None:
    with pytest.raises(TypeError):
        hash(Pingreq())


def test_repr_is_readable_and_bounded() -> None:
    assert repr(Ack(4, 7)) == "Ack(kind=4, packet_id=7, code=0)"
    shown = repr(Publish(b"t", b"x" * 1000))
    assert "(1000 bytes)" in shown
    assert len(shown) < 250


def test_every_packet_type_has_a_case() -> None:
    kinds = {case.data[0] >> 4 for case in VALID}
    assert kinds == set(range(1, 16))
    assert [kind_name(kind) for kind in (1, 3, 15)] == ["CONNECT", "PUBLISH", "AUTH"]


def test_faults_carry_code_and_text() -> None:
    for fault, code in ((malformed("why"), 0x81), (protocol_error("why"), 0x82), (MalformedPacket(0x95, "why"), 0x95)):
        assert (fault.code, fault.text, str(fault)) == (code, "why", f"0x{code:02X} why")
