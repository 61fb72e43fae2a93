"""Free memory, errors before an allocation that does not fit, and the time and memory that a block took."""

import sys
import threading
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psutil  # type: ignore[import-untyped]

from wordsway.errors import InputError

SMALL = 2**20  # bytes below which free memory is not looked up, since that takes a millisecond or two
_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_STATUS = Path("/proc/self/status")
_CLEAR_REFS = Path("/proc/self/clear_refs")


def human(size: int) -> str:
    """Format a number of bytes in decimal units: ``human(106_168_320_000) == "106.2 GB"``."""
    if size < 1000:
        return f"{size} B"
    for power, unit in enumerate(_UNITS, start=1):
        if size < 999.95 * 1000**power:  # 999.95 would be printed as 1000.0 of this unit
            return f"{size / 1000**power:.1f} {unit}"
    return f"{size // 1000 ** len(_UNITS)} {_UNITS[-1]}"  # whole numbers: a size may be too large for a float


def available() -> int:
    """Return the bytes that can still be allocated: by the free memory, the control groups and `ulimit -v`."""
    free = int(psutil.virtual_memory().available)
    return max(0, min([free, *_cgroup_free(_CGROUPS, _MEMBERSHIP), *_address_space()]))


def require(needed: int, what: str, remedy: str = "use a smaller size") -> None:
    """Raise unless `needed` bytes can still be allocated; call it before allocating. Less than `SMALL` never raises.

    Parameters
    ----------
    needed
        Bytes, as a Python integer, so that no size overflows.
    what
        Subject of the sentence, such as ``"a dense 115200 x 115200 float64 matrix"``.
    remedy
        What to do instead, as a command.

    Raises
    ------
    InputError
        With what is needed, what is free, and the remedy, in one line.
    """
    if needed < SMALL:
        return
    free = available()
    if needed > free:
        raise InputError(f"{what} needs {human(needed)}, but {human(free)} are free: {remedy}")


def _address_space() -> list[int]:
    """Return what is left of the address space of this process, if it is limited."""
    if sys.platform == "win32":
        return []
    import resource

    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    return [] if limit == resource.RLIM_INFINITY else [limit - int(psutil.Process().memory_info().vms)]


def _cgroup_free(root: Path, membership: Path) -> list[int]:
    """Return what is left under each memory limit (version 2 or 1) of the control groups of this process."""
    try:
        lines = membership.read_text().splitlines()
    except OSError:
        return []  # not Linux, or hidden
    left: list[int] = []
    for line in lines:
        _, controllers, group = line.split(":", 2)
        if controllers == "":
            names = ("memory.max", "memory.current", "inactive_file")
            tops = [root, root / "unified"]  # the second where both versions are mounted
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
            tops = [root / "memory"]
        else:
            continue
        inside = Path(group.lstrip("/"))
        # Every ancestor may set a limit. In a container the path may be the host's, so that only the top is visible.
        folders = {top / part for top in tops for part in (inside, *inside.parents)}
        left += [free for folder in folders if (free := _folder_free(folder, *names)) is not None]
    return left


def _folder_free(folder: Path, limit: str, usage: str, cache: str) -> int | None:
    """Return what is left in one control group, or None if it has no limit that can be read."""
    try:
        allowed = int((folder / limit).read_text())
        used = int((folder / usage).read_text())
        stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # no such file, or "max"
        return None
    return allowed - used + int(stat.get(cache, 0))  # the file cache is released when memory is short


@dataclass
class ResourceUsage:
    """Seconds and peak resident memory of a block, with dtype and device: ``with ResourceUsage() as usage: ...``.

    Attributes
    ----------
    seconds
        Wall time of the block.
    peak_mb
        Largest resident memory of the whole process during the block, in MB (10^6 bytes). It includes what was resident
        on entry, and what other threads used meanwhile; memory that an allocator kept from earlier work and uses again
        is resident on entry and raises no peak. On systems that cannot reset the peak (all but Linux), it is the peak
        since the process started: an upper bound.
    dtype, device
        Of the computation, set by `computed_in`.
    evaluations
        Batches of perturbations that a search evaluated.

    Notes
    -----
    Blocks may be nested and may overlap between threads: the process has a single high-water mark, so before each reset
    every running block takes note of it. Entering writes a small file of the system, leaving reads one. One object
    measures one block.
    """

    seconds: float = 0.0
    peak_mb: float = 0.0
    dtype: str = ""
    device: str = ""
    evaluations: int = 0

    def __enter__(self) -> Self:
        with _LOCK:
            _note_peak()
            _reset_high_water()
            _RUNNING.append(self)
        self._start = time.perf_counter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.seconds = time.perf_counter() - self._start
        with _LOCK:
            _note_peak()
            _RUNNING[:] = [usage for usage in _RUNNING if usage is not self]

    def computed_in(self, dtype: object, device: object, evaluations: int) -> Self:
        """Return a copy with dtype and device of the computation and its number of evaluations."""
        name = str(dtype).removeprefix("torch.")
        return replace(self, dtype=name, device=str(device), evaluations=evaluations)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, ready for JSON."""
        return asdict(self)


_LOCK = threading.Lock()
_RUNNING: list[ResourceUsage] = []


def _note_peak() -> None:
    """Raise the peak of every running block to the current high-water mark."""
    if _RUNNING:
        mark = _high_water() / 1e6
        for usage in _RUNNING:
            usage.peak_mb = max(usage.peak_mb, mark)


def _reset_high_water() -> None:
    """Reset the kernel's high-water mark, so that the next one that is read is that of this block."""
    try:
        _CLEAR_REFS.write_text("5")
    except OSError:
        return  # not Linux, or not permitted: the peak remains that of the process


def _high_water() -> int:
    """Return the peak resident memory since the last reset, in bytes."""
    try:
        for line in _STATUS.read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return _process_peak()


def _process_peak() -> int:
    """Return the peak resident memory of the process in bytes; on Windows, what is resident now."""
    if sys.platform == "win32":
        return int(psutil.Process().memory_info().rss)
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
