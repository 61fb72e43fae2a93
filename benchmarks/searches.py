"""Searches over candidates: all of them against a plain loop, few tries against all, and the page that runs them."""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import torch

import wordsway as ws
from benchmarks.attributions import MODEL, held_out_texts
from benchmarks.child import Child, job
from benchmarks.greedy import Plain
from benchmarks.models import review_opening
from benchmarks.report import Outcome, Row, Target, number
from wordsway.models.candidates import candidates_named
from wordsway.models.outputs import chosen_output
from wordsway.models.rewrites import Rewrite, Rewriter

LOOP = "All candidates of a text: passes against a plain loop over padded batches"
TRIES = "The best replacement of a word after few tries, against all of a set"
PAGE = "The local page (ours)"
_BATCHES = (32, 128)  # of the plain loop, the faster of which counts


@job
def passes_compared(count: int, tokens: tuple[int, int], candidates: str, threads: int) -> dict[str, Any]:
    """CPU seconds for the same rewritten texts, and how far the probabilities are apart."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    plain, seconds, ours, apart, passes = Plain(model), dict.fromkeys(_BATCHES, 0.0), 0.0, 0.0, 0
    for text in held_out_texts(count, tokens):
        read = model.read(text)
        rewriter, declared = (
            Rewriter(model, read, chosen_output(model, text=read)),
            candidates_named(model, read, candidates),
        )
        rewrites = [Rewrite(word, one) for word in read.scored for one in declared.of(word)]
        written = [rewriter.written(one) for one in rewrites]
        for size in _BATCHES:
            begin = time.process_time()
            starts = range(0, len(written), size)
            theirs = torch.cat([plain.probabilities(written[start : start + size]) for start in starts])
            seconds[size] += time.process_time() - begin
        begin = time.process_time()
        mine = rewriter.readings(rewriter.tokens(rewrites)).exp()
        ours += time.process_time() - begin
        apart, passes = max(apart, float((mine - theirs).abs().max())), passes + len(written)
    return {"plain": min(seconds.values()), "ours": ours, "apart": apart, "passes": passes}


def loop(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The same texts, tokenized and evaluated."""
    got = child("passes_compared", **size)
    ratio = got["plain"] / got["ours"]
    case = f"{MODEL}, {got['passes']:,} rewritten texts, {size['candidates']}"
    cells = {"case": case, "plain, ms per pass": number(1e3 * got["plain"] / got["passes"])}
    cells |= {"ours, ms per pass": number(1e3 * got["ours"] / got["passes"]), "times faster": number(ratio)}
    targets = (
        Target(case, "at least 1.5 times the passes per second of a plain loop", f"{ratio:.2f} times", ratio >= 1.5),
        Target(case, "the same probabilities, to 1e-4", f"{got['apart']:.0e}", got["apart"] <= 1e-4),
    )
    return Outcome((Row(LOOP, cells),), targets)


@job
def tries_compared(
    words: Mapping[str, int], tokens: tuple[int, int], candidates: str, tries: int, threads: int
) -> dict[str, Any]:
    """The largest rise and fall, or change, of few tries as shares of those of all, for words of several models."""
    torch.set_num_threads(threads)
    shares: dict[str, list[float]] = {}
    for named, count in words.items():
        name, on = named.split(" ")
        model = ws.load(name)
        for text in held_out_texts(count, tokens):
            read = model.read(text)
            place = [word.position for word in read.scored if word.text.isalpha() and len(word.text) > 1][-2]
            options: dict[str, Any] = {"on": on, "candidates": candidates, "top": 10**6}
            best = model.swaps(read, place, exhaustive=True, **options)
            some = model.swaps(read, place, checks=tries, **options)
            for sign in (1, -1) if best.signed else (1,):
                whole = max(sign * one.effect for one in best.swaps)
                found = max(sign * one.effect for one in some.swaps)
                if whole > 0:
                    shares.setdefault(named + (" rise" if sign > 0 else " fall") * best.signed, []).append(
                        found / whole
                    )
    return {"shares": shares}


def tries(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Few tries, whose gradients are computed too, against all."""
    got = child("tries_compared", **size)["shares"]
    rows, targets = [], []
    for name, shares in got.items():
        mean = sum(shares) / len(shares)
        cells = {"model and output": name, "words": str(len(shares)), "share of the best": f"{mean:.3f}"}
        rows.append(Row(TRIES, {**cells, "least": f"{min(shares):.3f}"}))
    every = [share for shares in got.values() for share in shares]
    mean = sum(every) / len(every)
    case = f"{len(every)} best effects of words over {size['candidates']}, {size['tries']} tries"
    targets.append(Target(case, "0.98 of the best of all, in the mean", f"{mean:.3f}", mean >= 0.98))
    return Outcome(tuple(rows), tuple(targets))


# The page


@contextmanager
def _served() -> Iterator[int]:
    """A server of the classifier, and its port."""
    command = [sys.executable, "-m", "wordsway", "serve", "--port", "0", "--model", MODEL]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr or ():
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/", line):
                yield int(found[1])
                break
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)


def _seconds(port: int, path: str, body: Any = None, first: bool = False) -> float:
    """Until an answer, or until the first value of a stream, has arrived."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
    begin = time.perf_counter()
    headers = {"Content-Type": "application/json"} if body is not None else {}
    connection.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body), headers)
    answer = connection.getresponse()
    if first:
        answer.readline(), answer.readline()
    else:
        answer.read()
    seconds = time.perf_counter() - begin
    connection.close()
    if answer.status != 200:
        raise RuntimeError(f"{path} gave {answer.status}")
    return seconds


@job
def page_waits(tokens: int, runs: int, requests: int) -> dict[str, Any]:
    """How long a user of the page waits, and how long other requests do while many measurements run."""
    model = ws.load(MODEL)
    question: dict[str, Any] = {"model": MODEL, "text": review_opening(model, tokens)}
    words = [
        word.position for word in model.read(question["text"]).scored if word.text.isalpha() and len(word.text) > 1
    ]
    with _served() as port:
        _seconds(port, "/api/profile", question)  # loads the model
        colours = sorted(_seconds(port, "/api/profile", question, first=True) for _ in range(runs))
        swaps = sorted(_seconds(port, "/api/swaps", {**question, "word": place}) for place in words[:runs])
        waits: list[float] = []
        over = threading.Event()

        def watch() -> None:
            while not over.is_set():
                waits.extend(_seconds(port, path) for path in ("/health", "/static/explore.js"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            with ThreadPoolExecutor(requests) as pool:
                texts = ({**question, "text": f"film {place}", "word": 0} for place in range(requests))
                answered = sum(
                    seconds > 0 for seconds in pool.map(lambda one: _seconds(port, "/api/swaps", one), texts)
                )
        finally:
            over.set()
            watcher.join()
    p95 = sorted(waits)[int(0.95 * len(waits))]
    median = {"colours": colours[len(colours) // 2], "swaps": swaps[len(swaps) // 2]}
    return {**median, "p95": p95, "looks": len(waits), "answered": answered}


def page(child: Child, size: Mapping[str, Any]) -> Outcome:
    """First colours, replacements of a word, and many requests at once."""
    got = child("page_waits", **size)
    count = size["requests"]
    case = f"serve, {MODEL}, {size['tokens']} tokens"
    cells = {
        "case": case,
        "first colours, s": number(got["colours"]),
        "replacements of a word, s": number(got["swaps"]),
    }
    cells |= {f"health and static files beside {count} measurements, p95, s": number(got["p95"])}
    return Outcome(
        (Row(PAGE, cells),),
        (
            Target(case, "first colours within 2 s", f"{got['colours']:.2f} s", got["colours"] <= 2),
            Target(case, "replacements of a word within 2 s", f"{got['swaps']:.2f} s", got["swaps"] <= 2),
            Target(case, "health and static files within 0.2 s, p95", f"{got['p95']:.3f} s", got["p95"] <= 0.2),
            Target(case, f"{count} requests at once are answered", str(got["answered"]), got["answered"] == count),
        ),
    )
