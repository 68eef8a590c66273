from __future__ import annotations

import os
from pathlib import Path

import pytest

from folkmoot.config.fault import ConfigError
from folkmoot.config.load import load
from folkmoot.config.secret import exposure, read_word
from folkmoot.kernel.errors import FolkmootError

WORD = "0123456789abcdef"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a file"
    path.write_text(WORD)
    path.chmod(0o600)
    return path


@pytest.mark.parametrize("mode", [0o600, 0o400, 0o700])
def test_a_file_of_one_user_is_private(file: Path, mode: int) -> None:
    file.chmod(mode)
    assert exposure(file) == ""
    assert read_word(file, "the token") == WORD


@pytest.mark.parametrize("mode", [0o644, 0o604, 0o602, 0o666])
def test_what_every_user_can_read_is_refused_with_the_command_that_mends_it(file: Path, mode: int) -> None:
    file.chmod(mode)
    with pytest.raises(FolkmootError, match=f"mode {mode:04o}.*`chmod 6[04]0 '.*/a file'`") as refused:
        read_word(file, "the token")
    assert WORD not in str(refused.value)


@pytest.mark.parametrize("mode", [0o640, 0o660, 0o620])
def test_the_group_has_no_access_to_a_file_of_the_node(file: Path, mode: int) -> None:
    file.chmod(mode)
    user = os.geteuid()
    if user == 0:  # root's own files count as those of another user
        user = 12_345
        os.chown(file, user, -1)
    assert "its group" in exposure(file, user)
    assert f"`chmod 600 '{file}'`" in exposure(file, user)


def test_the_group_may_read_a_file_of_another_user_and_not_change_it(file: Path) -> None:
    """As in a container: root's file, with defaultMode 0440 and fsGroup."""
    other = os.geteuid() + 1
    for mode in (0o440, 0o640):
        file.chmod(mode)
        assert exposure(file, other) == ""
    for mode in (0o660, 0o650, 0o444, 0o644):
        file.chmod(mode)
        assert f"`chmod 640 '{file}'`" in exposure(file, other)


@pytest.mark.parametrize(
    ("section", "name"), [("admin", "token_file"), ("auth", "password_file"), ("cluster", "secret_file")]
)
def test_a_start_is_refused(file: Path, section: str, name: str) -> None:
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=f"{section}.{name}: .*chmod"):
        load(None, {}, {section: {name: str(file)}})


def test_a_key_of_tls_is_a_secret_and_a_certificate_is_none(file: Path) -> None:
    certificate = file.with_name("certificate")
    certificate.touch(0o644)
    certificate.chmod(0o644)
    listener = {"protocol": "mqtts", "address": "127.0.0.1:0"}
    tls = {"certificate": str(certificate), "key": str(file)}
    load(None, {}, {"listeners": [listener], "tls": tls})
    file.chmod(0o644)
    with pytest.raises(ConfigError, match=r"tls\.key: .*chmod"):
        load(None, {}, {"listeners": [listener], "tls": tls})


def test_a_file_that_is_not_there_is_no_matter_of_permissions(tmp_path: Path) -> None:
    assert exposure(tmp_path / "gone") == ""
