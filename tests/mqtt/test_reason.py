from __future__ import annotations

import pytest

from folkmoot.mqtt import reason

# Table 2-6 of MQTT 5.0, by packet type.
ACK = {0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99}
TABLE: dict[int, set[int]] = {
    2: {0x00, *range(0x80, 0x8B), 0x8C, 0x90, 0x95, 0x97, 0x99, 0x9A, 0x9B, 0x9C, 0x9D, 0x9F},
    4: ACK,
    5: ACK,
    6: {0x00, 0x92},
    7: {0x00, 0x92},
    9: {0x00, 0x01, 0x02, 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2},
    11: {0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91},
    14: {0x00, 0x04, 0x80, 0x81, 0x82, 0x83, 0x87, 0x89, *range(0x8B, 0x91), *range(0x93, 0xA3)},
    15: {0x00, 0x18, 0x19},
}


@pytest.mark.parametrize("kind", range(16))
def test_codes_by_packet(kind: int) -> None:
    assert {code for code in range(256) if reason.allowed(kind, code)} == TABLE.get(kind, set())


def test_every_code_has_a_name_and_a_constant() -> None:
    codes = set().union(*TABLE.values())
    constants = {
        value for name, value in vars(reason).items() if name in reason.__all__ and name.isupper() and "V3" not in name
    }
    assert codes == constants
    names = {reason.name(code) for code in codes}
    assert len(names) == len(codes) == 43
    assert not any(name.startswith("0x") for name in names)
    assert reason.name(0x03) == "0x03"


def test_connack_codes_of_version_3() -> None:
    # Section 3.2.2.3 of MQTT 3.1.1; -1 where no return code fits and the server closes in silence.
    expected = {0x00: 0, 0x84: 1, 0x85: 2, 0x88: 3, 0x89: 3, 0x86: 4, 0x87: 5, 0x8A: 5, 0x81: -1, 0x82: -1, 0x95: -1}
    assert {code: reason.v3_connack(code) for code in expected} == expected
    assert {reason.v3_connack(code) for code in TABLE[2]} == {-1, 0, 1, 2, 3, 4, 5}


def test_suback_codes_of_version_3() -> None:
    assert {reason.v3_suback(code) for code in TABLE[9] if code >= 0x80} == {0x80}
    assert [reason.v3_suback(code) for code in (0, 1, 2)] == [0, 1, 2]
