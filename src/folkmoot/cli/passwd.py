"""`folkmoot passwd`: writes a password file; format and hashing are in `folkmoot.config.password`."""

from __future__ import annotations

import sys
from getpass import getpass
from pathlib import Path

import click

from folkmoot.cli.error import Refusal
from folkmoot.config import PasswordFile

__all__ = ["passwd"]


@click.command()
@click.argument("file", type=click.Path(path_type=Path), help="The password file; created if it does not exist.")
@click.argument("user", help="The user name.")
@click.option("--delete", is_flag=True, help="Remove the user.")
@click.option("--stdin", is_flag=True, help="Read the password from the first line of standard input.")
def passwd(file: Path, user: str, delete: bool, stdin: bool) -> int:
    """Add USER to FILE, or change the password, which is asked for twice or read from standard input."""
    users = PasswordFile.read(file) if file.exists() else PasswordFile()
    if delete:
        if not users.remove(user):
            raise Refusal(f"{file} has no user {user!r}; it has: {', '.join(users.hashes) or 'nobody'}")
        users.write(file)
        print(f"{file}: removed {user}")
        return 0
    known = user in users.hashes
    try:
        users.set(user, read_password(stdin))
    except ValueError as error:
        raise Refusal(str(error)) from None
    try:
        users.write(file)
    except OSError as error:
        raise Refusal(f"{file} cannot be written ({error.strerror}): name a file in a folder that exists") from None
    print(f"{file}: {'changed' if known else 'added'} {user}")
    return 0


def read_password(stdin: bool) -> bytes:
    """Return the password, never echoed; raises Refusal if it is empty or the repetition differs."""
    if stdin or not sys.stdin.isatty():
        password = sys.stdin.readline().rstrip("\r\n")
    else:
        password = getpass("password: ")
        if getpass("again: ") != password:
            raise Refusal("the passwords differ: nothing was written, try again", status=1)
    if not password:
        raise Refusal("the password is empty: nothing was written")
    return password.encode()
