"""Audits of data sets: brute force over plain passes, processes that die, hostile texts, labels and intervals."""

import csv
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from models import small_transformers, tiny
from record_checks import check_record
from scipy import stats

import wordsway as ws
from wordsway.data.texts import read_samples
from wordsway.errors import InputError
from wordsway.experiments import executors
from wordsway.experiments.auditing import limited, matched_labels
from wordsway.experiments.intervals import PairedDifference, Share

WORDS = ["the", "film", "was", "long", "short", "good", "bad", "rain", "dark", "blue", "song", "house", "."]
LETTERS = [word for word in WORDS if word.isalpha()]


def write_classifier(folder: Path, seed: int = 0) -> Path:
    """Save a small classifier that is undecided on average."""
    folder.mkdir()
    tokenizer = tiny.write_tokenizer(folder, WORDS)
    network = small_transformers.make("bert-classifier", seed=seed, vocab_size=tokenizer.get_vocab_size())
    ids = torch.tensor([tokenizer.encode(text).ids for text in ["the film was good"]])
    with torch.no_grad():
        network.classifier.bias -= network(input_ids=ids).logits[0]
    network.float().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classifier(tmp_path_factory.mktemp("model") / "classifier")


def _texts(count: int, seed: int = 0) -> list[str]:
    random_words = random.Random(seed)
    return [" ".join(random_words.choices(LETTERS, k=random_words.randint(1, 5))) for _ in range(count)]


def _logits(model: ws.Model, text: str) -> torch.Tensor:
    ids = torch.tensor([model.texts.backend.encode(text).ids])
    with torch.no_grad():
        logits: torch.Tensor = model.network(input_ids=ids).logits[0]
    return logits


def _flips(model: ws.Model, text: str) -> bool:
    """Whether any word of the vocabulary flips a text, by plain passes over all rewritten texts."""
    words, before = text.split(), int(_logits(model, text).argmax())
    rewritten = [
        " ".join([*words[:place], one, *words[place + 1 :]])
        for place, word in enumerate(words)
        for one in LETTERS
        if one != word
    ]
    return any(int(_logits(model, one).argmax()) != before for one in rewritten)


def test_every_number_is_that_of_brute_force(classifier: Path) -> None:
    model = ws.load(classifier)
    texts = _texts(14)
    labels = [place % 2 for place in range(len(texts))]
    audit = ws.audit(model, texts, labels, candidates="vocabulary")
    predictions = [int(_logits(model, text).argmax()) for text in texts]
    correct = [one == label for one, label in zip(predictions, labels, strict=True)]
    flips = [_flips(model, text) for text in texts]
    assert 0 < sum(flips) < len(flips)
    assert 0 < sum(correct) < len(correct)
    assert [one.verdict for one in audit.texts] == ["flips" if flip else "safe" for flip in flips]
    assert [one.correct for one in audit.texts] == correct
    assert audit.accuracy == sum(correct) / len(correct)
    assert audit.robust == sum(good and not flip for good, flip in zip(correct, flips, strict=True)) / len(texts)
    assert audit.flip_share == sum(flips) / len(flips)
    for one, prediction in zip(audit.texts, predictions, strict=True):
        row, place = one.row(), prediction
        assert row["prediction"] == f"LABEL_{place}"
        assert row["before"] == pytest.approx(float(_logits(model, one.text).softmax(-1)[place]), rel=1e-5)
        if row["flip"]:
            words = one.text.split()
            words[row["position"]] = row["replacement"]
            after = _logits(model, " ".join(words))
            assert row["becomes"] == f"LABEL_{int(after.argmax())}" != row["prediction"]
            assert row["after"] == pytest.approx(float(after.softmax(-1)[place]), rel=1e-5)
        profile = model.profile(one.text)
        assert one.measured is not None
        for measured, effect in zip(one.measured["words"], profile.rows(), strict=True):
            for name in ("masked", "typical", "worst"):
                if effect[name] is None:  # the mask of a text of one word
                    assert measured[name] is None
                else:
                    assert measured[name] == pytest.approx(effect[name], rel=1e-5)
        assert row["passes"] == profile.passes + model.flips(one.text, candidates="vocabulary").passes


def test_counts_of_words_and_replacements_are_those_of_the_rows(classifier: Path) -> None:
    texts = _texts(20, seed=1)
    audit = ws.audit(ws.load(classifier), [*texts, texts[0]], candidates="vocabulary")
    rows = audit.rows()
    tops = [row["top_word"] for row in rows]
    for one in audit.deciding_words():
        assert one["texts"] == tops.count(one["word"])
        assert rows[one["example"]]["top_word"] == one["word"]
    flipped = [row["replacement"] for row in rows if row["flip"]]
    for one in audit.flipping_replacements():
        assert one["texts"] == flipped.count(one["replacement"])
        assert rows[one["example"]]["replacement"] == one["replacement"]
    counts = [one["texts"] for one in audit.flipping_replacements()]
    assert counts == sorted(counts, reverse=True)
    left = [one.row()["after"] for one in audit.least_robust()]
    assert left == sorted(row["after"] for row in rows if row["flip"])[: len(left)]
    assert {**rows[0], "number": 20, "line": 21} == rows[20]  # the same text again


def test_the_views_of_the_record(classifier: Path) -> None:
    audit = ws.audit(
        ws.load(classifier), _texts(6), [0, 1, 0, 1, 0, None], candidates="near:3", against=str(classifier)
    )
    keys = {"model", "accuracy", "robust_accuracy", "flips", "verdicts", "passes", "interval", "differences"}
    check_record(audit, keys, audit.accuracy or 0.0)
    assert audit.accuracy_share.total == 5
    assert all(one.value == 0 for one in audit.differences().values())
    assert ws.audit(ws.load(classifier), _texts(2), candidates="near:2").to_dict()["accuracy"] is None


def test_a_budget_leaves_texts_open(classifier: Path) -> None:
    model, texts = ws.load(classifier), _texts(14)
    full = ws.audit(model, texts, candidates="vocabulary")
    audit = ws.audit(model, texts, candidates="vocabulary", budget=1)
    assert audit.verdicts["not found"] > 0
    assert audit.robust_share.count <= full.robust_share.count <= audit.robust_share.count + audit.robust_share.open
    assert audit.robust_share.high >= full.robust_share.high
    assert all(one.row()["tried"] <= 1 for one in audit.texts)


def test_flips_of_every_word_are_counted(classifier: Path, tmp_path: Path) -> None:
    model, texts = ws.load(classifier), _texts(6)
    audit = ws.audit(model, texts, candidates="vocabulary", exhaustive=True)
    assert sum(one.row()["flipping"] for one in audit.texts) > 0
    for one in audit.texts:
        assert one.measured is not None
        expected = [
            (row["tried"], row["flips"])
            for row in model.flips(one.text, candidates="vocabulary", exhaustive=True).rows()
        ]
        assert [(word["tried"], word["flips"]) for word in one.measured["words"]] == expected
        assert one.row()["flipping"] == sum(flips for _, flips in expected)
        assert one.row()["tried"] == one.row()["candidates"]
    groups = tmp_path / "groups.txt"
    groups.write_text("good, bad\n")
    assert ws.audit(model, ["dark rain"], candidates=str(groups), exhaustive=True).rows()[0]["flipping"] == 0
    assert ws.audit(model, texts[:1], candidates="vocabulary").rows()[0]["flipping"] is None


def test_a_text_without_candidates_is_safe(classifier: Path, tmp_path: Path) -> None:
    groups = tmp_path / "groups.txt"
    groups.write_text("good, bad\n")
    audit = ws.audit(ws.load(classifier), ["dark rain", "good film"], candidates=str(groups))
    assert (audit.rows()[0]["verdict"], audit.rows()[0]["tried"]) == ("safe", 0)
    assert audit.rows()[1]["candidates"] == 1
    groups.write_text("good, bad, blue\n")  # other words are another set, also in a store
    assert ws.audit(ws.load(classifier), ["good film"], candidates=str(groups)).rows()[0]["candidates"] == 2


HOSTILE = [
    "",
    "   ",
    "long " * 100,
    "\x00 film",
    "<script>alert(1)</script>",
    "\ud800 film",
    "\u202efilm \U0001f600",
    "film",
]


def test_texts_that_fail_have_a_reason_and_stop_nothing(classifier: Path) -> None:
    audit = ws.audit(ws.load(classifier), [*HOSTILE, None, 3.5], candidates="near:2")  # type: ignore[list-item]
    reasons = [one.reason for one in audit.texts]
    assert [reason is None for reason in reasons] == [False, False, False, True, True, False, True, True, False, False]
    assert "must have at most 40 tokens" in str(reasons[2])
    assert reasons[5] == "the text must be UTF-8, got half a character at character 0: save it as UTF-8"
    assert reasons[9] == "the text must be a string, got float"
    assert audit.verdicts["not measured"] == 6
    assert audit.flips.total == 4
    json.dumps(audit.to_dict(), allow_nan=False)


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet", "txt", "folder"])
def test_files_of_all_kinds_give_the_same_texts(kind: str, tmp_path: Path) -> None:
    texts, labels = ["a good film", 'dark, "blue" rain'], ["1", "0"]
    path = tmp_path / f"x.{kind}"
    if kind == "csv":
        with path.open("w", newline="") as stream:
            csv.writer(stream).writerows([["id", "Review", "sentiment"], [7, texts[0], 1], [8, texts[1], 0]])
    elif kind == "jsonl":
        rows = [{"content": text, "label": int(label)} for text, label in zip(texts, labels, strict=True)]
        path.write_text("\n".join(map(json.dumps, rows)))
    elif kind == "parquet":
        import pandas as pd

        pd.DataFrame({"n": [0, 1], "strange": texts, "label": [1, 0]}).to_parquet(path)
    elif kind == "txt":
        path.write_text("\n\n".join(texts))
    else:
        for text, label in zip(texts, labels, strict=True):
            (path / label).mkdir(parents=True)
            (path / label / "0.txt").write_text(text)
        texts, labels = texts[::-1], labels[::-1]  # the order of their paths
    samples = read_samples(str(path))
    assert [one.text for one in samples.samples] == texts
    assert [one.label for one in samples.samples] == ([None, None] if kind == "txt" else labels)
    expected = {"csv": "Review", "jsonl": "content", "parquet": "strange", "txt": None, "folder": None}
    assert samples.column == expected[kind]
    assert (samples.column in samples.guessed) == (samples.column is not None)
    if kind not in ("txt", "folder"):
        named = read_samples(str(path), expected[kind], samples.label_column)
        assert (named.guessed, named.samples) == ((), samples.samples)


def test_bytes_that_are_not_utf8_cost_one_text(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_bytes(b"text,label\ngood film,1\nb\xe4d film,0\n" + b"x" * 200_000 + b",0\n")
    good, bad, long = read_samples(str(path)).samples
    assert (good.problem, long.problem) == (None, None)
    assert bad.problem == "the text must be UTF-8, got the byte 0xe4 at character 1: save it as UTF-8"
    assert bad.text == "b\\xe4d film"


@pytest.mark.parametrize(
    ("values", "classes", "expected"),
    [
        (["Positive", "negative"], ["negative", "positive"], ["positive", "negative"]),
        (["1", "0"], ["negative", "positive"], ["positive", "negative"]),
        (["1.0", "0.0"], ["negative", "positive"], ["positive", "negative"]),
        (["-1", "1"], ["negative", "positive"], ["negative", "positive"]),
        (["pos", "neg"], ["negative", "positive"], ["positive", "negative"]),
        (["1"], ["negative", "positive"], ["positive"]),
        (["2", "0"], ["negative", "positive"], None),
        (["p"], ["poor", "positive"], None),
        (["Paris"], [], ["Paris"]),
    ],
)
def test_labels_are_matched_with_classes(values: list[str], classes: list[str], expected: list[str] | None) -> None:
    matched = matched_labels(values, classes)
    assert matched == (None if expected is None else dict(zip(values, expected, strict=True)))


def test_labels_that_are_no_classes_are_refused_or_left_out(classifier: Path, tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("text,label\ngood film,12\n")
    model = ws.load(classifier)
    audit = ws.audit(model, path, candidates="near:2")
    assert audit.accuracy is None
    assert any("labels are not used" in note and "12" in note for note in audit.notes)
    with pytest.raises(InputError, match=r"must hold classes of .* got 12"):
        ws.audit(model, path, label_column="label")
    for wrong in ({"budget": 0}, {"limit": 0}, {"candidates": "nearest"}, {"workers": 0}, {"column": "nothing"}):
        with pytest.raises(InputError):
            ws.audit(model, path, **wrong)


def test_a_limit_draws_texts_and_a_larger_one_keeps_them(tmp_path: Path) -> None:
    path = tmp_path / "x.txt"
    path.write_text("\n".join(f"text {number}" for number in range(50)))
    samples = read_samples(str(path))
    few, more = ([one.line for one in limited(samples, count, 0).samples] for count in (5, 20))
    assert len(few) == 5
    assert set(few) < set(more)
    assert few == sorted(few) != list(range(1, 6))
    assert [one.line for one in limited(samples, 5, 1).samples] != few
    assert limited(samples, 50, 0) is samples


def test_two_models_are_compared_text_by_text(classifier: Path, tmp_path: Path) -> None:
    other = write_classifier(tmp_path / "other", seed=3)
    texts, labels = _texts(16), [place % 2 for place in range(16)]
    audit = ws.audit(str(classifier), [*texts, ""], [*labels, 0], candidates="vocabulary", against=str(other))
    assert audit.against is not None
    alone = ws.audit(str(other), [*texts, ""], [*labels, 0], candidates="vocabulary")
    assert audit.against.rows() == alone.rows()
    first = np.array([one.verdict == "flips" for one in audit.texts[:16]])
    second = np.array([one.verdict == "flips" for one in alone.texts[:16]])
    difference = audit.differences()["flips"]
    assert (difference.gained, difference.lost) == (sum(first & ~second), sum(second & ~first))
    assert difference.total == 16
    assert difference.value == pytest.approx(first.mean() - second.mean())
    assert audit.rows()[0]["against_verdict"] == alone.rows()[0]["verdict"]


# Intervals


@pytest.mark.parametrize(("count", "total"), [(0, 5), (3, 7), (7, 7), (167, 200)])
def test_intervals_of_shares_are_those_of_scipy(count: int, total: int) -> None:
    expected = stats.binomtest(count, total).proportion_ci(0.95, "exact")
    assert (Share(count, total).low, Share(count, total).high) == pytest.approx((expected.low, expected.high))
    assert Share(0, 0).value is None
    assert Share(2, 9, open=3).high == Share(5, 9).high


def test_intervals_of_differences_cover_the_truth() -> None:
    """The coverage by enumeration of all outcomes: 95% on average over the true shares, and never far below."""
    total, coverages = 30, []
    for first, second in [(0.05, 0.05), (0.2, 0.1), (0.3, 0.3), (0.5, 0.1), (0.02, 0.2)]:
        covered = 0.0
        for gained in range(total + 1):
            for lost in range(total + 1 - gained):
                low, high = PairedDifference(gained, lost, total).interval
                chance = stats.multinomial.pmf(
                    [gained, lost, total - gained - lost], total, [first, second, 1 - first - second]
                )
                covered += float(chance) * (low <= first - second <= high)
        coverages.append(covered)
    assert min(coverages) > 0.93
    assert 0.94 < np.mean(coverages) < 0.99


# Where it runs, and processes that die


def _csv(audit: ws.experiments.Audit) -> str:
    from wordsway.report.files import table_as_csv

    return table_as_csv(audit.rows())


def test_the_numbers_are_the_same_everywhere(classifier: Path, tmp_path: Path) -> None:
    from distributed import LocalCluster

    make: Any = LocalCluster
    texts = [*_texts(12), *HOSTILE[:5]]
    options: dict[str, Any] = {"candidates": "near:4", "seed": 3}
    here = ws.audit(ws.load(classifier), texts, **options)
    two = ws.audit(str(classifier), texts, workers=2, store=tmp_path / "two.sqlite", **options)
    assert _csv(two) == _csv(here)
    with (
        make(n_workers=1, threads_per_worker=2, dashboard_address=None, protocol="tcp://") as cluster,
        executors.dask(cluster.scheduler_address) as backend,
    ):
        assert _csv(ws.audit(str(classifier), texts, executor=backend, **options)) == _csv(here)
    with ws.Store(tmp_path / "two.sqlite") as store:  # nothing is measured again
        count = len(list(store.rows(["audit"])))
        assert _csv(ws.audit(str(classifier), texts, store=store, **options)) == _csv(here)
        assert len(list(store.rows(["audit"]))) == count == len(set(texts))


def test_an_object_stays_in_its_process(classifier: Path) -> None:
    network = ws.load(classifier)
    model = ws.load(network.network, network.texts.backend)
    assert ws.audit(model, ["good film"], candidates="near:2").measured == 1
    with pytest.raises(InputError, match="workers must load the model by its name"):
        ws.audit(model, ["good film"], candidates="near:2", workers=2)


def _command(folder: Path, classifier: Path, name: str, workers: int) -> list[str]:
    export = ["--export", str(folder / f"{name}.csv"), "--out", str(folder / name), "--workers", str(workers)]
    fixed = ["--model", str(classifier), "--candidates", "vocabulary", "--json"]
    return [sys.executable, "-m", "wordsway", "audit", str(folder / "x.csv"), *fixed, *export]


def test_a_run_that_is_killed_continues_and_exports_the_same_bytes(classifier: Path, tmp_path: Path) -> None:
    texts = _texts(150, seed=5)
    with (tmp_path / "x.csv").open("w", newline="") as stream:
        rows = [[text, place % 2] for place, text in enumerate([*texts, "", texts[0]])]
        csv.writer(stream).writerows([["text", "label"], *rows])
    store = tmp_path / "killed" / "store.sqlite"
    delays, finished, kills = random.Random(0), False, 0
    for workers in (1, 2, 1):
        with subprocess.Popen(
            _command(tmp_path, classifier, "killed", workers), start_new_session=True, stdout=subprocess.DEVNULL
        ) as program:
            before = _stored(store)
            while program.poll() is None and _stored(store) <= before:
                time.sleep(0.01)
            time.sleep(delays.random() / 2)
            finished = program.poll() is not None
            kills += not finished
            os.killpg(program.pid, signal.SIGKILL)
    assert kills > 0
    for name in ("killed", "whole"):
        subprocess.run(_command(tmp_path, classifier, name, 1), check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert _stored(store) == _stored(tmp_path / "whole" / "store.sqlite") == len({*texts, ""})


def _stored(path: Path) -> int:
    import sqlite3

    try:
        with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as db:
            return int(db.execute("SELECT count(*) FROM trials WHERE state = 'done'").fetchone()[0])
    except sqlite3.Error:
        return 0


# Children of one process that has everything loaded, so that twenty of them can be killed in a short time
_KILLS = """
import json, os, random, signal, sys, time
from pathlib import Path
import wordsway as ws
from wordsway.report.files import export

model, table, folder = ws.load(sys.argv[1]), sys.argv[2], Path(sys.argv[3])

def start(name):
    child = os.fork()
    if child:
        return child
    audit = ws.audit(model, table, candidates="vocabulary", store=folder / f"{name}.sqlite")
    export(audit.rows(), "csv", str(folder / f"{name}.csv"))
    os._exit(0)

begin = time.perf_counter()
assert os.waitpid(start("whole"), 0)[1] == 0
whole, moments, killed = time.perf_counter() - begin, random.Random(0), 0
for _ in range(20):
    child = start("killed")
    time.sleep(moments.uniform(0, whole / 8))
    os.kill(child, signal.SIGKILL)
    killed += os.WIFSIGNALED(os.waitpid(child, 0)[1])
assert os.waitpid(start("killed"), 0)[1] == 0
print(killed)
"""


def test_twenty_kills_at_random_moments_lose_and_double_nothing(classifier: Path, tmp_path: Path) -> None:
    texts = list(dict.fromkeys(_texts(500, seed=6)))[:250]
    table = tmp_path / "x.csv"
    with table.open("w", newline="") as stream:
        csv.writer(stream).writerows([["text", "label"], *([text, place % 2] for place, text in enumerate(texts))])
    command = [sys.executable, "-c", _KILLS, str(classifier), str(table), str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) >= 10  # others had finished
    assert (tmp_path / "killed.csv").read_bytes() == (tmp_path / "whole.csv").read_bytes()
    assert _stored(tmp_path / "killed.sqlite") == len(texts)


def test_labels_of_a_file_reach_a_terminal_without_control_characters(
    classifier: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text,label\nthe film,\x1b]0;owned\x07\nthe song,\u202egood\n", encoding="utf-8")
    ws.audit(ws.load(classifier), table, progress=True)
    printed = capsys.readouterr().err
    assert "labels are not used" in printed
    assert "owned" in printed
    assert not any(sign in printed for sign in "\x1b\x07\u202e")
