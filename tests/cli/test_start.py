"""How the command line starts and ends: nothing heavy for help, a closed pipe, a full disk, other encodings."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from cli.conftest import Run
from wordsway import __version__
from wordsway.cli import main
from wordsway.experiments.experiment import Trial
from wordsway.experiments.store import DONE, STORE, Row, Store


@pytest.mark.parametrize(
    ("command", "code"),
    [
        *((command, 0) for command in ("--help", "measure --help", "results show -h")),
        *((f"{command}{kind}", 0) for command in ("maps", "figures", "models") for kind in ("", " --json")),
        *((command, 0) for command in ("results", "results --json", "results show fig6", "results export")),
        ("results show fig7", 1),  # which the store does not have
        ("results --out nowhere", 1),
        ("results --out torch.txt", 1),  # a file
        ("results export --format xml", 1),
        ("results export --to nowhere/rows.csv", 1),
        *((f"{command} --unknown", 2) for command in ("maps", "figures", "models", "results", "results show")),
        ("maps rf", 2),
        ("figure", 2),
    ],
)
def test_help_and_lists_import_nothing_heavy(tmp_path: Path, command: str, code: int) -> None:
    with Store(tmp_path / "results" / STORE) as store:
        store.add(Row(Trial("fig6", 1, "{}", 0), DONE, "{}"))
    (tmp_path / "torch.txt").touch()
    program = f"""
import sys
from wordsway.cli import main
try:
    main({command.split()})
except SystemExit as ended:
    heavy = {{"torch", "numpy", "scipy", "matplotlib", "transformers", "huggingface_hub", "tokenizers"}}
    print(sorted(heavy & set(sys.modules)), ended.code)
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True)
    *printed, last = done.stdout.splitlines()
    assert last == f"[] {code}"
    assert done.stderr if code else printed


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
    program = "from wordsway.cli import main; main(['text', 'a na\u00efve \U0001f600', '--budget', '1'])"
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


def test_a_file_that_cannot_be_reached_is_named(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied", "a-file")

    monkeypatch.setattr("wordsway.report.lists.print_maps", refuse)
    assert run("maps").refusal == "cannot continue: Permission denied (a-file)"


@pytest.mark.parametrize(
    "arguments",
    [
        ("measure", "raf", "--data", "/no/\x1b]0;title\x07\u202e.npy"),
        ("results", "show", "--out", "no\x1b[31m\u202e"),
        ("text", "a", "--input", "no\x1b[31m.txt"),
    ],
)
def test_nothing_from_an_argument_controls_the_terminal(arguments: tuple[str, ...]) -> None:
    program = f"from wordsway.cli import main; main({list(arguments)!r})"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode in (1, 2)
    assert not set("\x1b\x07\u202e") & set(done.stdout + done.stderr)


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory")])
def test_an_allocation_that_fails_is_one_line(run: Run, monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("wordsway.report.lists.print_maps", fail)
    assert run("maps").refusal.startswith("the memory does not suffice (")


def test_other_errors_keep_their_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("a defect")

    monkeypatch.setattr("wordsway.report.lists.print_maps", fail)
    with pytest.raises(RuntimeError, match="a defect"):
        main(["maps"])


def test_a_removed_working_directory_is_one_line(tmp_path: Path) -> None:
    program = (
        "import os; os.rmdir(os.getcwd()); from wordsway.cli import main; main(['measure', 'raf', '--n=3', '--d=2'])"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "wordsway: the working directory does not exist any more: change to one that does\n"


def test_the_package_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "wordsway", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"wordsway {__version__}\n"


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("wordsway rep", "reproduce"),
        ("wordsway reproduce --sc", "--scale"),
        ("wordsway reproduce fig2", "fig2-drf fig2-rf"),
        ("wordsway results show fig1 fig6", "fig6"),
        ("wordsway measure re", "relu-raf"),
        ("wordsway measure raf --ce", "--ceiling"),
    ],
)
def test_a_shell_completes_names(line: str, completed: str) -> None:
    program = "import sys; from wordsway.cli import main; main()"
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split()) - 1)}
    environment = {**os.environ, **words, "_WORDSWAY_COMPLETE": "complete_bash"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == completed.split()


def test_completion_is_installed_in_the_home_folder(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash")
    command = f"{sys.executable} -m wordsway --install-completion; exit $?"  # it looks which shell it is started by
    environment = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run([bash, "-c", command], capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    installed = tmp_path / ".bash_completions" / "wordsway.sh"
    assert "_WORDSWAY_COMPLETE=complete_bash" in installed.read_text()
    assert str(installed) in (tmp_path / ".bashrc").read_text()
