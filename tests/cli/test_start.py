"""How the command line starts and ends: nothing heavy for help, a closed pipe, a full disk, other encodings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from wordsway import __version__
from wordsway.cli import main


def test_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert not ended.value.code
    assert capsys.readouterr().out == f"wordsway {__version__}\n"


@pytest.mark.parametrize("command", ["--help", "measure --help", "text -h", "results show -h", "--version"])
def test_help_imports_nothing_heavy(command: str) -> None:
    program = f"""
import sys
from wordsway.cli import main
try:
    main({command.split()})
except SystemExit as ended:
    heavy = sorted({{"torch", "numpy", "scipy", "matplotlib", "transformers"}} & set(sys.modules))
    print(heavy, ended.code, file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[] 0\n"
    assert "wordsway" in done.stdout


def test_a_reader_that_leaves_is_no_error() -> None:
    program = "from wordsway.cli import main; main(['measure', 'raf', '--n=3', '--d=2', '--trials=9999', '--json'])"
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline().startswith(b'{"map": "raf"')
        process.stdout.close()
        assert process.stderr.read() == b""
    assert process.returncode == 1


def test_words_that_a_terminal_cannot_show_do_not_end_a_measurement() -> None:
    program = "from wordsway.cli import main; main(['text', 'a na\u00efve \U0001f600', '--steps', '1'])"
    environment = {**os.environ, "PYTHONIOENCODING": "ascii"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "na?ve" in done.stdout


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full disk to write to")
def test_a_full_disk_is_one_line() -> None:
    program = "from wordsway.cli import main; main(['measure', 'raf', '--n=3', '--d=2', '--json'])"
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run(
            [sys.executable, "-c", program], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert done.returncode == 1
    assert done.stderr == "wordsway: cannot continue: No space left on device\n"


def test_a_file_that_cannot_be_reached_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "a-file")

    monkeypatch.setattr("wordsway.report.measurements.print_maps", refuse)
    with pytest.raises(SystemExit) as ended:
        main(["maps"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "wordsway: cannot continue: Permission denied (a-file)\n"


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "wordsway", "--version"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith("wordsway ")
