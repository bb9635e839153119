"""An output folder that appears whole or not at all.

Files are built in `<dir>.partial` and the folder gets its name as the last step. A journal of
finished tensors lets an interrupted run go on; on resuming, every journaled tensor is read again
and its digest compared, so nothing rests on what a crash may have lost.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import json
import os
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import xxhash

from taskpack.errors import CheckpointError, HostError, ProfileError
from taskpack.weights.checksums import crc32
from taskpack.weights.copy_engine import BUFFER_BYTES, read_into
from taskpack.weights.out_file import OutFile, TensorKey
from taskpack.weights.sink import Written, write_all
from taskpack.weights.target import JOURNAL_FILE, partial_of, replaced_of

DIR_MODE = 0o750
FILE_MODE = 0o640


class OutDir:
    """The partial folder of one run.

    Args:
        target: The folder to make.
        outs: Its laid out files.
        fingerprint: Digest of everything that decides the bytes; a resumed run must have the same.
    """

    def __init__(self, target: Path, outs: Sequence[OutFile], fingerprint: str) -> None:
        self.target = target
        self.partial = partial_of(target)
        self._outs = {out.path: out for out in outs}
        self._fingerprint = fingerprint
        self._left = {out.path: {spec.address for spec in out.specs} for out in outs}
        self._crcs: dict[str, dict[TensorKey, int]] = defaultdict(dict)
        self.digests: dict[str, dict[TensorKey, str]] = defaultdict(dict)

    @contextmanager
    def opened(self, *, resume: bool) -> Iterator[set[tuple[str, TensorKey]]]:
        """Lay out the files; yield the tensors that a resumed run already has.

        Raises:
            HostError: Another run is writing the same target.
            ProfileError: The interrupted run was another one.
        """
        self._make_dir(self.partial)
        lock = os.open(self.partial, os.O_RDONLY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise HostError(
                f"another run is writing {self.target}",
                where=str(self.partial),
                why="two runs would mix their bytes",
                fix="wait for it to end, or name another output folder",
            ) from None
        try:
            journal = self._read_journal() if resume else None
            if journal is None:
                self._clear()
            self._lay_out()
            yield self._still_good(journal or [])
        finally:
            os.close(lock)

    def record(self, written: Sequence[Written], paths: Mapping[str, str]) -> list[str]:
        """Journal finished tensors; finish and name the files that are now complete."""
        line = [[paths[item.file], item.key, item.name, item.digest, item.crc] for item in written]
        with (self.partial / JOURNAL_FILE).open("a", encoding="utf-8") as journal:
            journal.write(json.dumps(line) + "\n")
        for path, key, name, digest, crc in line:
            self._note(str(path), (str(key), str(name)), str(digest), int(str(crc)))
        touched = {paths[item.file] for item in written}
        return [path for path in sorted(touched) if self._finish_file(path)]

    def finish_empty_files(self) -> None:
        """Finish the files that hold no tensor, or that a resumed run found complete."""
        for path in self._outs:
            self._finish_file(path)

    def write_text(self, path: str, text: str) -> None:
        """Write a small file."""
        self.write_bytes(path, text.encode())

    def write_bytes(self, path: str, content: bytes) -> None:
        """Write a small file."""
        full = self.partial / path
        self._make_dir(full.parent)
        full.write_bytes(content)
        full.chmod(FILE_MODE)
        _sync(full)

    def publish(self, *, overwrite: bool) -> None:
        """Give the finished folder its name."""
        left = {path: names for path, names in self._left.items() if names}
        assert not left, f"unfinished files {sorted(left)}"
        (self.partial / JOURNAL_FILE).unlink(missing_ok=True)
        for folder in [self.partial, *(p for p in self.partial.rglob("*") if p.is_dir())]:
            _sync(folder)
        old = replaced_of(self.target)
        replace = self.target.is_dir() and overwrite and any(self.target.iterdir())
        if replace:
            self.target.rename(old)
        elif self.target.is_dir():
            self.target.rmdir()
        self.partial.rename(self.target)
        _sync(self.target.parent)
        if replace:
            shutil.rmtree(old, ignore_errors=True)

    def _note(self, path: str, address: TensorKey, digest: str, crc: int) -> None:
        self._crcs[path][address] = crc
        self.digests[path][address] = digest
        self._left[path].discard(address)

    def _finish_file(self, path: str) -> bool:
        if self._left[path]:
            return False
        fd = os.open(self.partial / path, os.O_RDWR)
        try:
            for offset, content in self._outs[path].tail(self._crcs[path]):
                write_all(fd, content, offset, self.partial / path)
            os.fsync(fd)
        finally:
            os.close(fd)
        return True

    def _clear(self) -> None:
        for entry in self.partial.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        (self.partial / JOURNAL_FILE).write_text(json.dumps(self._fingerprint) + "\n")

    def _lay_out(self) -> None:
        for out in self._outs.values():
            path = self.partial / out.path
            self._make_dir(path.parent)
            fd = os.open(path, os.O_RDWR | os.O_CREAT, FILE_MODE)
            try:
                os.fchmod(fd, FILE_MODE)
                os.truncate(fd, out.size)
                _reserve(fd, out.size, path)
                for offset, content in out.head:
                    write_all(fd, content, offset, path)
            finally:
                os.close(fd)

    def _read_journal(self) -> list[list[object]] | None:
        path = self.partial / JOURNAL_FILE
        if not path.is_file():
            return None
        lines: list[object] = []
        for line in path.read_text(encoding="utf-8").splitlines():
            try:
                lines.append(json.loads(line))
            except ValueError:
                break  # the line that was being written when the run was killed
        if not lines:
            return None
        if lines[0] != self._fingerprint:
            raise ProfileError(
                "the interrupted run had other inputs or another layout",
                where=str(path),
                why="its finished tensors do not belong to this output",
                fix="repeat the interrupted command with --resume, or start anew with --overwrite",
            )
        return [item for line in lines[1:] if isinstance(line, list) for item in line]

    def _still_good(self, journal: Sequence[Sequence[object]]) -> set[tuple[str, TensorKey]]:
        """Read every journaled tensor again; keep those whose digest still holds."""
        good: set[tuple[str, TensorKey]] = set()
        for path, key, name, digest, _crc in journal:
            out = self._outs.get(str(path))
            address = (str(key), str(name))
            if out is None or address not in out.offsets:
                continue
            found = digest_of(self.partial / out.path, out, address)
            if found is not None and found[0] == digest:
                self._note(out.path, address, *found)
                good.add((out.path, address))
        return good

    def _make_dir(self, path: Path) -> None:
        """Make a folder and those between it and the partial folder, each with our mode."""
        if path != self.partial and not path.parent.exists():
            self._make_dir(path.parent)
        elif path == self.partial:
            path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.mkdir()
            path.chmod(DIR_MODE)


def _reserve(fd: int, size: int, path: Path) -> None:
    """Reserve the blocks of a file, so that threads that write all over it do not scatter it.

    The plain system call: libc's `posix_fallocate` would write every block itself where the file
    system cannot reserve; then nothing is reserved, which only costs time.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "fallocate"):
        return
    length = ctypes.c_int64(size)
    if libc.fallocate(fd, 0, ctypes.c_int64(0), length) and ctypes.get_errno() == errno.ENOSPC:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def digest_of(path: Path, out: OutFile, address: TensorKey) -> tuple[str, int] | None:
    """Digest and CRC-32 of one tensor of a laid out file; None where the file is too short."""
    size = next(spec.nbytes for spec in out.specs if spec.address == address)
    try:
        return digest_range(path, out.offsets[address], size)
    except (FileNotFoundError, CheckpointError):
        return None


def digest_range(
    path: Path, offset: int, size: int, progress: Callable[[int], object] = lambda _count: None
) -> tuple[str, int]:
    """Digest and CRC-32 of a run of bytes.

    Raises:
        CheckpointError: The file ends before.
    """
    digest, crc = xxhash.xxh3_128(), 0
    buffer = memoryview(bytearray(min(BUFFER_BYTES, max(size, 1))))
    fd = os.open(path, os.O_RDONLY)
    try:
        for at in range(0, size, len(buffer)):
            view = buffer[: min(len(buffer), size - at)]
            read_into(fd, view, offset + at, path)
            digest.update(view)
            crc = crc32(view, crc)
            progress(len(view))
    finally:
        os.close(fd)
    return digest.hexdigest(), crc


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
