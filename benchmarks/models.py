"""Pre-trained transformers: profiles of texts against a loop over words, and swaps against the whole vocabulary."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import wordsway as ws
from benchmarks.child import Child, job
from benchmarks.metering import measure
from benchmarks.report import Outcome, Row, Target, agree, costs, faster, number, span, under, within
from wordsway.memory import human
from wordsway.models.ball import ball_profile
from wordsway.models.words import Text, Word

LOOP = "Profile of a text: all words in batches, against one search per word"
LARGE = "Texts of a pre-trained model (ours)"
MODEL = "minilm"
ALONE = 15  # steps of a search before words try what moved the others most: both sides evaluate the same points
KEPT = Path(__file__).resolve().parent / "swaps.json"  # what text_best gives for 20 texts, some four minutes each
_BATCHED = (
    "Batches do not change how many products of matrices a profile takes, and these are nearly as fast for one word "
    "of 64 tokens as for many on this machine: what batches save is what comes on top, and the waiting of threads."
)


def review_opening(model: Any, n: int, seed: int = 0) -> str:
    """The opening of a review that the model reads as n tokens, with those that open and close it."""
    for length in range(n - 1, 2, -1):
        tokens = model.review_tokens(1, length, seed)[0].tolist()
        text: str = model.texts.backend.decode(tokens, skip_special_tokens=True)
        if len(model.read(text).ids) <= n:
            return text
    raise ValueError(f"no opening of the review of seed {seed} has {n} tokens or fewer")


def middle(text: Text) -> int:
    """The position of the first word of letters after the middle that is one token."""
    count = len(text.scored)
    fitting = (word.text.isalpha() and len(word.tokens) == 1 for word in text.scored[count // 2 :])
    return count // 2 + list(fitting).index(True)


# Jobs


@job
def text_profile(n: int, threads: int, runs: int, **options: Any) -> dict[str, Any]:
    """All words of a text in batches."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    text = review_opening(model, n)
    (profile, *_), usage = measure(lambda _: ball_profile(model, text, **options), runs, warm=False)
    return {**usage, "tokens": len(profile.text.ids), "values": profile.values.tolist()}


@job
def text_loop(n: int, threads: int) -> dict[str, Any]:
    """The same words one after the other, each with passes of its own."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    text = review_opening(model, n)
    words = range(len(model.read(text).scored))
    (values,), usage = measure(
        lambda _: [float(ball_profile(model, text, [word], steps=ALONE).values[0]) for word in words], warm=False
    )
    return {**usage, "values": values}


@job
def text_memory(n: int, words: int, steps: int, threads: int) -> dict[str, Any]:
    """Some words of a text that is as long as the model can read; the batches are those of all words."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    text = review_opening(model, n)
    (profile,), usage = measure(lambda _: ball_profile(model, text, range(words), steps=steps), warm=False)
    return {**usage, "tokens": len(profile.text.ids), "words": len(profile.words), "value": profile.best.value}


@job
def text_swaps(n: int, threads: int, runs: int, exhaustive: bool) -> dict[str, Any]:
    """Replacements of the word in the middle of a text."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    text = review_opening(model, n)
    word = middle(model.read(text))
    (found, *_), usage = measure(lambda _: model.swaps(text, word, on="last", exhaustive=exhaustive), runs, warm=False)
    return {
        **usage,
        "tokens": len(found.text.ids),
        "candidates": found.candidates,
        "checked": found.checked,
        "word": found.swaps[0].replaced.text,
        "best": found.swaps[0].word,
        "value": found.swaps[0].value,
    }


@job
def text_best(n: int, seed: int, threads: int) -> dict[str, Any]:
    """The best of all replacements of the word in the middle of a text."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    text = review_opening(model, n, seed)
    found = model.swaps(text, middle(model.read(text)), on="last", exhaustive=True, top=1)
    return {"text": text, "n": n, "best": found.swaps[0].word, "value": found.swaps[0].value}


@job
def swaps_shortfall(count: int, threads: int) -> dict[str, Any]:
    """How far ranked swaps fall short of the best of all, which is kept; and how far what is kept is from the model."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    short, apart, checked = [], [], []
    for kept in json.loads(KEPT.read_text(encoding="utf-8"))[:count]:
        text = kept["text"]
        found = model.swaps(text, middle(model.read(text)), on="last")
        short.append(1 - found.swaps[0].value / kept["value"])
        apart.append(abs(_plain_change(model, found.text, found.swaps[0].replaced, kept["best"]) / kept["value"] - 1))
        checked.append(found.checked)
    return {"short": short, "apart": max(apart), "checked": max(checked)}


def _plain_change(model: Any, text: Text, word: Word, best: str) -> float:
    """How far a replacement moves the last hidden state, by the network itself."""
    swapped = text.text[: word.start] + best + text.text[word.end :]
    with torch.no_grad():
        before, after = (model.network(torch.tensor([model.read(one).ids]))[0] for one in (text.text, swapped))
    return float(torch.linalg.vector_norm(after - before) / torch.linalg.vector_norm(before))


# Cases


def profile(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The same text and searches, in batches and word by word."""
    n, threads, limit = size["n"], size["threads"], size["seconds"]
    default = child("text_profile", n=n, threads=threads, runs=size["runs"])
    ours = child("text_profile", n=n, threads=threads, runs=1, steps=ALONE)
    loop = child("text_loop", n=n, threads=threads)
    case = f"{MODEL}, {ours['tokens']} tokens, {len(ours['values'])} words, {threads} threads"
    ratio = loop["seconds"] / ours["seconds"]
    gap = max(abs(a / b - 1) for a, b in zip(ours["values"], loop["values"], strict=True))
    cells = {
        "case": case,
        "word by word, s": number(loop["seconds"]),
        "ours, s": number(ours["seconds"]),
        "ours by default, s": number(default["seconds"]),
        "times faster": number(ratio),
        "whole process": human(ours["peak"]),
        "S: least / mean / most": span(default["values"]),
    }
    targets = (
        within(case, default, limit),
        faster(case, ratio, 1.5, " than word by word"),
        agree(case, gap, 1e-4, "the same values, to 1e-4"),
    )
    return Outcome((Row(LOOP, cells),), targets, (_BATCHED,))


def memory(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Batches at the longest text that the model reads."""
    got = child("text_memory", **{name: size[name] for name in ("n", "words", "steps", "threads")})
    case = f"profile, {MODEL}, {got['tokens']} tokens, {got['words']} words, {size['steps']} steps"
    full = Target(case, f"{size['n']} tokens", str(got["tokens"]), got["tokens"] == size["n"])
    return Outcome((Row(LARGE, {"case": case, **costs(got)}),), (full, under(case, got, size["memory"])))


def swaps(child: Child, size: Mapping[str, Any]) -> Outcome:
    """The best replacements of one word."""
    got = child("text_swaps", **{name: size[name] for name in ("n", "threads", "runs", "exhaustive")})
    how = "all tried" if size["exhaustive"] else f"ranked, {got['checked']} tried"
    case = f"swaps, {MODEL}, {got['tokens']} tokens, {size['threads']} threads, {got['candidates']:,} words, {how}"
    result = f"{got['word']} -> {got['best']}, {got['value']:.4f}"
    row = Row(LARGE, {"case": case, **costs(got), "result": result})
    return Outcome((row,), (within(case, got, size["seconds"]),))


def shortfall(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Ranked swaps against the best of all replacements, which is known for some texts."""
    got = child("swaps_shortfall", count=size["count"], threads=size["threads"])
    short, limit = got["short"], size["limit"]
    case = f"swaps, {MODEL}, {len(short)} texts, {got['checked']} tried"
    mean, exact = sum(short) / len(short), sum(one < 1e-4 for one in short)
    result = f"below the best of all: {mean:.2%} in the mean, {max(short):.2%} at most; {exact} of {len(short)} are it"
    targets = (
        Target(case, f"within {limit:.0%} of the best of all, each text", f"{max(short):.2%}", max(short) <= limit),
        Target(case, "what is kept of the best agrees to 1e-4", f"{got['apart']:.1e}", got["apart"] <= 1e-4),
    )
    return Outcome((Row(LARGE, {"case": case, "result": result}),), targets)
