"""The data folder of a node: its lock and the version of its layout.

Owns the files `lock`, `holder`, `format` and `running`, and the path of the store. It never looks into the store.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from pathlib import Path
from typing import Final

from folkmoot.kernel.errors import StoreError

__all__ = ["FORMAT", "DataFolder", "stored_node_id", "sync_folder"]

FORMAT: Final = 2
"""Version of the layout of the folder and of the rows; raised by a change that an older program cannot read."""


BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")


class DataFolder:
    """A data folder that this process owns: created if it is missing, locked until `close`.

    Raises StoreError if another process owns it, if another node or version created it, or if it cannot be written.
    """

    def __init__(self, path: Path, node_id: str, partitions: int) -> None:
        self.path = path
        self.store = path / "store"
        self._running = path / "running"
        self.fresh = False  # nothing was stored here before
        self.closed_to_others = False  # other users could read it until now
        self.open_to_others = ""  # why other users can still see the names of its files
        self.succeeds = False  # the process that had the folder last has certainly ended
        self._lock = -1
        try:
            self._make_private(path)
            self._lock = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StoreError(
                f"cannot use the data folder {path}: {error.strerror}; "
                "choose another with --data, or make it writable for this user"
            ) from error
        try:
            self._take_lock()
            self._check_format(node_id, partitions)
            self._succeed()
        except BaseException:
            self.close()
            raise

    def _make_private(self, path: Path) -> None:
        """Create the folder for this user alone, or close one that all users can read; a group keeps its access.

        A folder of another user, such as the root of a mounted volume, cannot be closed; then the store is.
        """
        if not path.exists():
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
            path.chmod(0o700)  # whatever the umask
        status = path.stat()
        if not status.st_mode & 0o007:
            return
        if status.st_uid == os.geteuid():
            path.chmod(status.st_mode & 0o7700)
            self.closed_to_others = True
            return
        if self.store.exists() and self.store.stat().st_uid == os.geteuid():
            self.store.chmod(0o700)
        self.open_to_others = (
            f"every user can list {path}, which belongs to another user: `chmod o-rwx {path}` as its owner"
        )

    def _take_lock(self) -> None:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(self._lock, 64, 0).decode("ascii", "replace").strip()
            process = f"process {holder}" if holder else "another process"
            raise StoreError(
                f"the data folder {self.path} is in use by {process}; "
                "stop that node first, or choose another with --data"
            ) from error
        os.ftruncate(self._lock, 0)
        os.pwrite(self._lock, f"{os.getpid()}\n".encode(), 0)

    def _succeed(self) -> None:
        """Find out whether the last process on this folder has ended, and leave the next one the same evidence.

        It has if it had this lock, and not that of a folder of which this one is a copy, since the system started: the
        system releases the lock when a process has ended. After a reboot, or on another machine, nothing is said.
        """
        status = os.fstat(self._lock)
        try:
            mine = f"{BOOT_ID.read_text('ascii').strip()} {status.st_dev} {status.st_ino}\n"
        except FileNotFoundError:
            return
        holder = self.path / "holder"
        self.succeeds = holder.exists() and holder.read_text("ascii", "replace") == mine
        if not self.succeeds:
            with contextlib.suppress(OSError):  # as on a full disk: then the next process has no evidence
                holder.write_text(mine, "ascii")

    def _check_format(self, node_id: str, partitions: int) -> None:
        path = self.path / "format"
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            if self.store.exists() and any(self.store.iterdir()) and not (self.path / "format.new").exists():
                raise StoreError(
                    f"{self.path} has a store but no file 'format': it is damaged or not the data of a node; "
                    "restore the folder from a backup, or choose another with --data"
                ) from None
            self.fresh = True
            self._write_format(node_id, partitions)
            return
        self._compare(path, text, node_id, partitions)

    def _write_format(self, node_id: str, partitions: int) -> None:
        content = {"format": FORMAT, "node": node_id, "partitions": partitions}
        (self.path / "format.new").write_text(json.dumps(content) + "\n", "utf-8")

    def established(self) -> None:
        """Record that the store was created: from now on, a folder without a store is damaged."""
        if not self.fresh:
            return
        new = self.path / "format.new"
        with new.open("rb") as file:
            os.fsync(file.fileno())
        new.rename(self.path / "format")
        sync_folder(self.path)
        sync_folder(self.path.parent)
        self.fresh = False

    def _compare(self, path: Path, text: str, node_id: str, partitions: int) -> None:
        try:
            content = json.loads(text)
            version, owner, count = int(content["format"]), str(content["node"]), int(content["partitions"])
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(f"{path} is damaged: restore it from a backup of the data folder") from error
        if version != FORMAT:
            raise StoreError(
                f"{self.path} has data of format {version}, this program reads format {FORMAT}; "
                "use the version of folkmoot that wrote it, or choose another folder with --data"
            )
        if owner != node_id:
            raise StoreError(
                f"{self.path} belongs to the node '{owner}', not to '{node_id}'; "
                f"start with --node-id {owner}, or choose another folder with --data"
            )
        if count != partitions:
            raise StoreError(
                f"{self.path} was made with {count} partitions, which cannot change; "
                f"set node.partitions = {count}, or choose another folder with --data"
            )

    def lost(self) -> bool:
        """Return whether the last node on this folder may have lost writes that did not wait for the disk.

        That is so if it did not stop cleanly and the machine has rebooted since; otherwise the kernel has written them.
        """
        try:
            return self._running.read_text("utf-8").strip() != BOOT_ID.read_text("ascii").strip()
        except FileNotFoundError:
            return False

    def begin(self, forced: bool) -> None:
        """Record that a node runs here, after the caller has read `lost`; forced: its writes wait for the disk."""
        if forced:
            self.end()
            return
        with self._running.open("w", encoding="utf-8") as file:
            file.write(BOOT_ID.read_text("ascii"))
            file.flush()
            os.fsync(file.fileno())
        sync_folder(self.path)

    def end(self) -> None:
        """Record that everything is on disk."""
        self._running.unlink(missing_ok=True)

    def free_bytes(self) -> int:
        """Return how many bytes an unprivileged process can still write in the folder's file system."""
        status = os.statvfs(self.path)
        return status.f_bavail * status.f_frsize

    def size_bytes(self) -> int:
        """Return the size of the folder's file system."""
        status = os.statvfs(self.path)
        return status.f_blocks * status.f_frsize

    def close(self) -> None:
        """Release the folder for other processes; idempotent."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def sync_folder(path: Path) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def stored_node_id(path: Path) -> str:
    """Return the id of the node that owns a data folder; "" if there is none yet or it cannot be read."""
    try:
        content = json.loads((path / "format").read_text("utf-8"))
        return str(content["node"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
