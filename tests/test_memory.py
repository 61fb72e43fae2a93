"""Sizes that do not fit raise before they are allocated, and each block measures its own time and peak."""

import mmap
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
from hypothesis import given
from hypothesis import strategies as st

from wordsway import memory
from wordsway.errors import InputError
from wordsway.memory import ResourceUsage, available, human, require

MB = 10**6
can_reset = os.access("/proc/self/clear_refs", os.W_OK)
needs_reset = pytest.mark.skipif(not can_reset, reason="the kernel's high-water mark cannot be reset here")


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.0 kB"),
        (999_949, "999.9 kB"),
        (999_999, "1.0 MB"),
        (115_200**2 * 8, "106.2 GB"),
        (7_680_000**2 * 8, "471.9 TB"),
        (10**18, "1.0 EB"),
        (10**25, "10000000 EB"),
        (10**400, "1" + "0" * 382 + " EB"),
    ],
)
def test_human(size: int, text: str) -> None:
    assert human(size) == text


@given(st.integers(1000, 10**20))
def test_human_keeps_the_size_to_its_last_digit(size: int) -> None:
    number, unit = human(size).split()
    scale = 1000 ** (["kB", "MB", "GB", "TB", "PB", "EB"].index(unit) + 1)
    assert abs(float(number) * scale - size) <= 0.0501 * scale


def test_require_lets_small_sizes_pass_and_refuses_large_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 20_100 * MB)
    require(20_100 * MB, "a block")
    with pytest.raises(InputError) as caught:
        require(115_200**2 * 8, "a dense 115200 x 115200 float64 matrix", "use LazyGaussian")
    assert str(caught.value) == (
        "a dense 115200 x 115200 float64 matrix needs 106.2 GB, but 20.1 GB are free: use LazyGaussian"
    )
    with pytest.raises(InputError, match=r"are free: use a smaller size$"):
        require(10**500, "a block")


def test_small_sizes_pass_without_looking_up_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "available", lambda: 0)
    require(memory.SMALL - 1, "a block")
    with pytest.raises(InputError, match=r"a block needs 1\.0 MB, but 0 B are free"):
        require(memory.SMALL, "a block")


def test_available_is_positive_and_no_more_than_the_machine_has() -> None:
    assert 0 < available() <= psutil.virtual_memory().total


VERSION_2 = {"memory.max": "900", "memory.current": "300", "memory.stat": "anon 200\ninactive_file 50"}
NO_LIMIT = {"memory.max": "max", "memory.current": "300", "memory.stat": "anon 1"}
FULL = {"memory.max": "900", "memory.current": "1000", "memory.stat": "anon 200\ninactive_file 50"}
VERSION_1 = {
    "memory.limit_in_bytes": "1000",
    "memory.usage_in_bytes": "400",
    "memory.stat": "cache 9\ntotal_inactive_file 7",
}


@pytest.mark.parametrize(
    ("membership", "groups", "left"),
    [
        ("0::/outer/inner\n", {"outer": VERSION_2, "outer/inner": NO_LIMIT}, 650),  # ancestors count
        ("0::/outer/inner\n", {"outer": FULL, "outer/inner": VERSION_2}, 0),  # the lowest, and never negative
        ("4:memory:/host/abc\n3:cpu,cpuacct:/\n0::/\n", {"memory": VERSION_1}, 607),  # only the top is visible
        (None, {}, psutil.virtual_memory().total),
    ],
)
def test_limits_of_control_groups_count(
    membership: str | None,
    groups: dict[str, dict[str, str]],
    left: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory, "_CGROUPS", tmp_path / "fs")
    monkeypatch.setattr(memory, "_MEMBERSHIP", tmp_path / "cgroup")
    if membership is not None:
        (tmp_path / "cgroup").write_text(membership)
    for folder, files in groups.items():
        (tmp_path / "fs" / folder).mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (tmp_path / "fs" / folder / name).write_text(text + "\n")
    assert available() == left if groups else 0 < available() <= left


def _touch(megabytes: int) -> None:
    """Make pages resident and release them: pages of the system, since an allocator may reuse what it has kept."""
    with mmap.mmap(-1, megabytes * MB) as block:
        for start in range(0, len(block), mmap.PAGESIZE):
            block[start] = 1


def test_a_limit_of_the_address_space_counts() -> None:
    program = """
import resource, psutil
from wordsway import memory
room = psutil.Process().memory_info().vms + 10**8
resource.setrlimit(resource.RLIMIT_AS, (room, room))
print(memory.available())
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert 0 < int(done.stdout) <= 10**8


def test_a_block_is_measured_also_if_it_raises() -> None:
    start, usage = time.perf_counter(), ResourceUsage()
    with pytest.raises(TypeError), usage:
        float(time.sleep(0.02))  # type: ignore[func-returns-value, arg-type]
    assert 0.02 <= usage.seconds <= time.perf_counter() - start
    assert usage.peak_mb > 1.0
    noted = usage.computed_in("torch.float32", "cpu", 7)
    assert (noted.dtype, noted.device, noted.evaluations, noted.seconds) == ("float32", "cpu", 7, usage.seconds)
    assert (usage.dtype, usage.evaluations) == ("", 0)  # a copy was returned


def test_memory_that_was_used_and_released_counts() -> None:
    with ResourceUsage() as small:
        pass
    with ResourceUsage() as large:
        _touch(200)
    assert large.peak_mb >= small.peak_mb + (180 if can_reset else 0)


@needs_reset
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_nested_blocks_have_their_own_peaks(when: str) -> None:
    with ResourceUsage() as outer:
        if when == "before":
            _touch(300)
        with ResourceUsage() as inner:
            _touch(300 if when == "inside" else 50)
        if when == "after":
            _touch(300)
    with ResourceUsage() as plain:
        _touch(300)
    assert outer.peak_mb == pytest.approx(plain.peak_mb, abs=40)
    if when == "inside":
        assert inner.peak_mb == pytest.approx(plain.peak_mb, abs=40)
    else:
        assert outer.peak_mb - inner.peak_mb > 200


@needs_reset
def test_blocks_may_overlap_between_threads() -> None:
    entered, leave = threading.Event(), threading.Event()
    seen: list[float] = []

    def other() -> None:
        with ResourceUsage() as usage:
            entered.set()
            leave.wait(10)
        seen.append(usage.peak_mb)

    with ResourceUsage() as first:
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait(10)
        _touch(200)
    leave.set()  # the other block ends after this one, and its peak must survive
    thread.join()
    assert seen == [pytest.approx(first.peak_mb, abs=20)]


@pytest.mark.parametrize("platform", ["linux", "win32"])
def test_without_the_files_of_linux_the_peak_of_the_process_is_reported(
    platform: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "no" / "such")
    monkeypatch.setattr("sys.platform", platform)
    with ResourceUsage() as usage:
        pass
    now = psutil.Process().memory_info().rss / 1e6
    assert 0.5 * now < usage.peak_mb < 1e6  # the right unit: not a factor 1024 off
