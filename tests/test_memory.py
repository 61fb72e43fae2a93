"""Sizes are refused before they are allocated, and meters see the peak of their own block."""

import mmap
import os
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
        require(115_200**2 * 8, "a dense 115200 x 115200 float64 matrix", "reveal it as it is asked")
    assert str(caught.value) == (
        "a dense 115200 x 115200 float64 matrix needs 106.2 GB, but 20.1 GB are free: reveal it as it is asked"
    )
    with pytest.raises(InputError, match=r"are free: use a smaller size$"):
        require(10**500, "a block")


def test_small_sizes_pass_without_asking_the_system(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def none() -> int:
        asked.append(1)
        return 0

    monkeypatch.setattr(memory, "available", none)
    require(memory.SMALL - 1, "a block")
    assert not asked
    with pytest.raises(InputError, match=r"a block needs 1\.0 MB, but 0 B are free"):
        require(memory.SMALL, "a block")
    assert asked


def test_available_is_positive_and_no_more_than_the_machine_has() -> None:
    assert 0 < available() <= psutil.virtual_memory().total


def _group(folder: Path, files: dict[str, str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text + "\n")


def test_version_2_limits_of_every_ancestor_count(tmp_path: Path) -> None:
    root, membership = tmp_path / "fs", tmp_path / "cgroup"
    membership.write_text("0::/outer/inner\n")
    _group(root / "outer", {"memory.max": "900", "memory.current": "300", "memory.stat": "anon 200\ninactive_file 50"})
    _group(root / "outer/inner", {"memory.max": "max", "memory.current": "300", "memory.stat": "anon 1"})
    assert memory._cgroup_free(root, membership) == [650]


def test_version_1_limits_count_also_when_only_the_top_is_visible(tmp_path: Path) -> None:
    root, membership = tmp_path / "fs", tmp_path / "cgroup"
    membership.write_text("4:memory:/host/path/abc\n3:cpu,cpuacct:/\n0::/\n")
    _group(
        root / "memory",
        {
            "memory.limit_in_bytes": "1000",
            "memory.usage_in_bytes": "400",
            "memory.stat": "cache 9\ntotal_inactive_file 7",
        },
    )
    assert memory._cgroup_free(root, membership) == [607]


def test_no_control_groups_no_limits(tmp_path: Path) -> None:
    assert memory._cgroup_free(tmp_path, tmp_path / "missing") == []


@pytest.mark.parametrize("left", [1, -1])
def test_available_takes_the_lower_limit_and_is_never_negative(left: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory, "_cgroup_free", lambda *_: [10**30, left])
    assert available() == max(left, 0)


def _touch(megabytes: int) -> None:
    """Make pages resident and give them back: pages of the system, as an allocator may hand out what it has kept."""
    with mmap.mmap(-1, megabytes * MB) as block:
        for start in range(0, len(block), mmap.PAGESIZE):
            block[start] = 1


def test_meter_times_the_block() -> None:
    start = time.perf_counter()
    with ResourceUsage() as meter:
        time.sleep(0.02)
    assert 0.02 <= meter.seconds <= time.perf_counter() - start
    assert meter.peak_mb > 1.0


def test_meter_sees_what_was_used_and_given_back() -> None:
    with ResourceUsage() as small:
        pass
    with ResourceUsage() as large:
        _touch(200)
    assert large.peak_mb >= small.peak_mb + (180 if can_reset else 0)


@needs_reset
def test_meter_forgets_what_was_used_before() -> None:
    _touch(300)
    with ResourceUsage() as meter:
        _touch(50)
    with ResourceUsage() as again:
        _touch(300)
    assert again.peak_mb - meter.peak_mb > 200


@needs_reset
@pytest.mark.parametrize("when", ["before", "inside", "after"])
def test_nested_meters_each_see_their_own_peak(when: str) -> None:
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
def test_meters_that_overlap_in_two_threads() -> None:
    entered, leave = threading.Event(), threading.Event()
    seen: list[float] = []

    def other() -> None:
        with ResourceUsage() as meter:
            entered.set()
            leave.wait(10)
        seen.append(meter.peak_mb)

    with ResourceUsage() as first:
        thread = threading.Thread(target=other)
        thread.start()
        entered.wait(10)
        _touch(200)
    leave.set()  # the other block ends after this one, and its peak must survive
    thread.join()
    assert seen == [pytest.approx(first.peak_mb, abs=20)]


def test_meter_reports_after_an_exception() -> None:
    meter = ResourceUsage()
    with pytest.raises(KeyError), meter:
        raise KeyError
    assert meter.seconds > 0
    assert meter.peak_mb > 1
    assert memory._RUNNING == []


def test_a_meter_writes_one_file_and_reads_one(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class File:
        def read_text(self) -> str:
            asked.append("read")
            return "VmHWM: 2000 kB"

        def write_text(self, text: str) -> None:
            asked.append(f"write {text}")

    for name in ("_STATUS", "_CLEAR_REFS"):
        monkeypatch.setattr(memory, name, File())
    with ResourceUsage() as meter:
        assert asked == ["write 5"]
    assert asked == ["write 5", "read"]
    assert meter.peak_mb == 2.048


def test_without_the_linux_files_the_peak_of_the_process_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "_STATUS", tmp_path / "missing")
    monkeypatch.setattr(memory, "_CLEAR_REFS", tmp_path / "no" / "such")
    with ResourceUsage() as meter:
        pass
    now = psutil.Process().memory_info().rss / 1e6
    assert 0.5 * now < meter.peak_mb < 1e6  # the right unit: not a factor 1024 off
    monkeypatch.setattr("sys.platform", "win32")
    assert memory._process_peak() / 1e6 == pytest.approx(now, rel=0.2)


def test_usage_states_what_a_block_computed_in_without_changing_itself() -> None:
    with ResourceUsage() as usage:
        pass
    noted = usage.computed_in("torch.float32", "cpu", 7)
    assert (noted.dtype, noted.device, noted.evaluations, noted.seconds) == ("float32", "cpu", 7, usage.seconds)
    assert (usage.dtype, usage.evaluations) == ("", 0)
