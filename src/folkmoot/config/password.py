"""Password files: owns their format, hashing (scrypt) and verification. Never keeps or logs a password.

A line is `USER:$scrypt$ln=14,r=8,p=1$SALT$HASH` (base64 without padding), the usual text form of scrypt hashes. The
cost (2^14 blocks of 1 KiB: 16 MiB and about 40 ms) makes guessing expensive, so `verify` belongs in a worker.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path
from typing import Final

from folkmoot.config.fault import ConfigError

__all__ = ["PasswordFile", "hash_password", "verify_password"]

LOG2_N: Final = 14
BLOCK: Final = 8
PARALLEL: Final = 1
COST: Final = f"ln={LOG2_N},r={BLOCK},p={PARALLEL}"
SALT_BYTES: Final = 16
HASH_BYTES: Final = 32
# A hash may have a higher cost than the default, but not so high that a single CONNECT stops the node.
LOG2_N_MAX: Final = 18
MEMORY_BYTES_MAX: Final = 320 * 1024 * 1024
_KEY: Final = secrets.token_bytes(32)


def encode64(data: bytes) -> str:
    """Return base64 without padding."""
    return base64.b64encode(data).decode("ascii").rstrip("=")


def decode64(text: str) -> bytes:
    """Return the bytes of base64 without padding; raises ValueError for anything else."""
    return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)


def derive(password: bytes, salt: bytes, log2_n: int, block: int, parallel: int) -> bytes:
    """Return the scrypt hash (RFC 7914) of a password."""
    return hashlib.scrypt(
        password, salt=salt, n=1 << log2_n, r=block, p=parallel, maxmem=MEMORY_BYTES_MAX, dklen=HASH_BYTES
    )


def hash_password(password: bytes, salt: bytes | None = None) -> str:
    """Return the text form of the hash of `password`, with a new random salt unless one is given."""
    salt = secrets.token_bytes(SALT_BYTES) if salt is None else salt
    digest = derive(password, salt, LOG2_N, BLOCK, PARALLEL)
    return f"$scrypt${COST}${encode64(salt)}${encode64(digest)}"


def verify_password(text: str, password: bytes) -> bool:
    """Return whether `password` matches the hash `text`; raises ValueError if `text` is not a hash."""
    log2_n, block, parallel, salt, digest = parse_hash(text)
    return hmac.compare_digest(derive(password, salt, log2_n, block, parallel), digest)


def parse_hash(text: str) -> tuple[int, int, int, bytes, bytes]:
    """Return the parts of a hash: log2 of N, r, p, salt, digest; raises ValueError if it is invalid or too costly."""
    parts = text.split("$")
    if len(parts) != 5 or parts[0] or parts[1] != "scrypt":
        raise ValueError("not a scrypt hash ($scrypt$ln=..,r=..,p=..$SALT$HASH)")
    cost = dict(pair.partition("=")[::2] for pair in parts[2].split(","))
    if set(cost) != {"ln", "r", "p"}:
        raise ValueError("the cost of a scrypt hash is ln=..,r=..,p=..")
    log2_n, block, parallel = int(cost["ln"]), int(cost["r"]), int(cost["p"])
    if not (1 <= log2_n <= LOG2_N_MAX and 1 <= block <= 8 and 1 <= parallel <= 4):
        raise ValueError(f"the cost of this hash is outside ln 1 to {LOG2_N_MAX}, r 1 to 8, p 1 to 4")
    digest = decode64(parts[4])
    if len(digest) != HASH_BYTES:
        raise ValueError(f"the hash has {len(digest)} bytes instead of {HASH_BYTES}")
    return log2_n, block, parallel, decode64(parts[3]), digest


class PasswordFile:
    """The users of a node and their hashes, in the order of the file."""

    def __init__(self, hashes: dict[str, str] | None = None) -> None:
        self.hashes: dict[str, str] = {} if hashes is None else hashes

    @classmethod
    def read(cls, path: Path) -> PasswordFile:
        """Return the users in a file, without empty lines and comments (#). ConfigError names a wrong line."""
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(str(path), [f"{error}: name a password file that can be read"]) from None
        hashes: dict[str, str] = {}
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("#"):
                continue
            user, _, text = line.strip().rpartition(":")
            try:
                check_user(user)
                parse_hash(text)
                if user in hashes:
                    raise ValueError(f"the user {user} has a line already, and only one can count")
            except ValueError as error:
                advice = "`folkmoot passwd FILE USER` writes valid lines"
                raise ConfigError(str(path), [f"line {number}: {error}; {advice}"]) from None
            hashes[user] = text
        return cls(hashes)

    def write(self, path: Path) -> None:
        """Replace the file atomically; only its owner can read it."""
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.writelines(f"{user}:{text}\n" for user, text in self.hashes.items())
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def set(self, user: str, password: bytes) -> None:
        """Add a user or change a password; raises ValueError for an invalid name."""
        check_user(user)
        self.hashes[user] = hash_password(password)

    def remove(self, user: str) -> bool:
        """Remove a user; return False if there is none of that name."""
        return self.hashes.pop(user, None) is not None

    def verify(self, user: str, password: bytes) -> bool:
        """Return whether the user exists and has this password; takes about 40 ms in either case."""
        known = user in self.hashes
        return verify_password(self.text_of(user), password) and known

    def text_of(self, user: str) -> str:
        """Return the hash of a user; for an unknown one, one that nothing matches and that costs as much as a known.

        The cost is that of any user, always the same for one name: else the time of the answer would tell which names
        exist.
        """
        known = self.hashes.get(user)
        if known is not None:
            return known
        digest = hashlib.blake2b(user.encode(), key=_KEY, digest_size=SALT_BYTES + HASH_BYTES).digest()
        texts = list(self.hashes.values())
        cost = texts[int.from_bytes(digest[:8], "big") % len(texts)].split("$")[2] if texts else COST
        return f"$scrypt${cost}${encode64(digest[:SALT_BYTES])}${encode64(digest[SALT_BYTES:])}"


def check_user(user: str) -> None:
    """Raise ValueError if a user name cannot be stored in a line."""
    if not user or not user.isprintable() or user != user.strip() or ":" in user or user.startswith("#"):
        # Without the text: a line with something else may hold a password.
        raise ValueError("a user name is printable text without ':' and without '#' or a space at its start")
