"""The format of password files, and what a wrong line is told."""

from __future__ import annotations

import hashlib
from base64 import b64encode
from pathlib import Path

import pytest

from folkmoot.config import ConfigError, PasswordFile
from folkmoot.config.password import hash_password, verify_password


def test_the_hash_is_scrypt_as_rfc_7914_says() -> None:
    # The third vector of RFC 7914, section 12, as a line of ours (its 64 bytes cut to our 32).
    digest = bytes.fromhex("7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2")
    text = f"$scrypt$ln=14,r=8,p=1${b64encode(b'SodiumChloride').decode().rstrip('=')}${b64encode(digest).decode()}"
    assert verify_password(text, b"pleaseletmein")
    assert not verify_password(text, b"pleaseletmein ")
    assert hash_password(b"pleaseletmein", b"SodiumChloride") == text.rstrip("=")
    assert hashlib.scrypt(b"pleaseletmein", salt=b"SodiumChloride", n=1 << 14, r=8, p=1, dklen=32) == digest


def test_the_same_password_never_has_the_same_hash_twice() -> None:
    assert hash_password(b"x") != hash_password(b"x")


@pytest.mark.parametrize("user", ["", " ann", "a:b", "#ann", "a\nb"])
def test_names_that_a_line_cannot_hold_are_refused(user: str) -> None:
    with pytest.raises(ValueError, match="a user name is"):
        PasswordFile().set(user, b"x")


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("ann", "a user name is"),
        ("ann:secret:more", "a user name is"),
        ("ann:secret", "not a scrypt hash"),
        ("ann:$6$salt$hash", "not a scrypt hash"),
        ("ann:$scrypt$ln=14$AA$AA", "the cost"),
        ("ann:$scrypt$ln=40,r=8,p=1$AA$AA", "outside"),
        ("ann:$scrypt$ln=14,r=8,p=1$AA$AA", "32"),
        ("ann:$scrypt$ln=x,r=8,p=1$AA$AA", "invalid literal"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, line: str, word: str) -> None:
    path = tmp_path / "users"
    path.write_text(f"# users\n\n{line}\n", encoding="utf-8")
    with pytest.raises(ConfigError, match=word) as raised:
        PasswordFile.read(path)
    assert "line 3" in str(raised.value)
    assert "folkmoot passwd" in str(raised.value)
    assert "secret" not in str(raised.value), "it may be a password"


def test_one_line_for_each_user(tmp_path: Path) -> None:
    """To remove one of two would not remove the user."""
    path = tmp_path / "users"
    path.write_text(f"ann:{hash_password(b'x')}\nbob:{hash_password(b'x')}\nann:{hash_password(b'y')}\n")
    with pytest.raises(ConfigError, match="line 3: the user ann has a line already"):
        PasswordFile.read(path)


def test_an_unknown_user_costs_what_those_of_the_file_cost() -> None:
    """Else the time of the answer tells which names exist."""
    salt, digest = "c2FsdHNhbHQ", b64encode(bytes(32)).decode().rstrip("=")
    costs = ["ln=4,r=8,p=1", "ln=5,r=8,p=1"]
    users = PasswordFile({f"user{number}": f"$scrypt${costs[number % 2]}${salt}${digest}" for number in range(10)})
    found = {name: users.text_of(name).split("$")[2] for name in ("eve", "mallory", *[f"x{n}" for n in range(30)])}
    assert set(found.values()) == set(costs)
    assert {name: users.text_of(name).split("$")[2] for name in found} == found
    assert not users.verify("eve", b"")
    assert PasswordFile().text_of("eve").split("$")[2] == "ln=14,r=8,p=1"


def test_writing_keeps_the_old_file_when_it_fails(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="users"):
        PasswordFile().write(tmp_path / "gone" / "users")
    assert list(tmp_path.iterdir()) == []


def test_a_removed_user_is_gone(tmp_path: Path) -> None:
    users = PasswordFile({"ann": hash_password(b"x")})
    assert users.remove("ann")
    assert not users.remove("ann")
    assert not users.verify("ann", b"x")
