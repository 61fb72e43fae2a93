"""Flips of one word against greedy search by word importance, over the same candidates."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

import wordsway as ws
from benchmarks.attributions import MODEL, held_out_texts
from benchmarks.child import Child, job
from benchmarks.report import Outcome, Row, Target, number
from wordsway.models.candidates import candidates_named

TABLE = "Can one word flip the class? All texts have a verdict over near:30"
_SOON = 100


class Plain:
    """A classifier as plain code runs it: texts are tokenized, padded and evaluated in one batch."""

    def __init__(self, model: Any) -> None:
        self.network, self.tokenizer = model.network, model.texts.backend
        self.pad = self.tokenizer.token_to_id("[PAD]")
        self.passes = 0

    def probabilities(self, texts: Sequence[str]) -> Tensor:
        rows = [encoding.ids for encoding in self.tokenizer.encode_batch(list(texts))]
        longest = max(map(len, rows))
        ids = torch.tensor([row + [self.pad] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        self.passes += len(rows)
        with torch.no_grad():
            logits: Tensor = self.network(input_ids=ids, attention_mask=mask).logits
        return logits.double().softmax(-1)


def greedy_flip(model: Any, plain: Plain, text: str, candidates: str) -> bool:
    """Words by how far the class falls without them, then all candidates of a word at once, until one flips it."""
    read = model.read(text)
    declared = candidates_named(model, read, candidates)
    words = list(read.scored)
    parts = [(text[: word.start], text[word.end :]) for word in words]
    first = plain.probabilities([text, *(left + "[UNK]" + right for left, right in parts)])
    top = int(first[0].argmax())
    for place in first[1:, top].argsort().tolist():
        left, right = parts[place]
        replacements = declared.of(words[place])
        if replacements and bool(
            (plain.probabilities([left + one + right for one in replacements]).argmax(-1) != top).any()
        ):
            return True
    return False


@job
def flips_compared(count: int, tokens: tuple[int, int], candidates: str, threads: int) -> dict[str, Any]:
    """CPU seconds, passes and verdicts of both on the same texts."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    plain, texts = Plain(model), held_out_texts(count, tokens)
    for warm in (
        lambda: greedy_flip(model, plain, texts[0], candidates),
        lambda: model.flips(texts[0], candidates=candidates),
    ):
        warm()
    sides: dict[str, list[dict[str, float]]] = {"greedy": [], "ours": []}
    for text in texts:
        plain.passes, begin = 0, time.process_time()
        found = greedy_flip(model, plain, text, candidates)
        middle = time.process_time()
        ours = model.flips(text, candidates=candidates)
        end = time.process_time()
        sides["greedy"].append({"seconds": middle - begin, "passes": plain.passes, "flip": found})
        sides["ours"].append({"seconds": end - middle, "passes": ours.passes, "flip": ours.flip, "tried": ours.tried})
    return sides


def compared(child: Child, size: Mapping[str, Any]) -> Outcome:
    """Both over all texts, and over those that flip: the others need every candidate tried, whatever the order."""
    sides = child("flips_compared", **{name: size[name] for name in ("count", "tokens", "candidates", "threads")})
    greedy, ours = sides["greedy"], sides["ours"]
    rows, faster = [], {}
    for kind, wanted in (("a flip exists", (True,)), ("all", (True, False))):
        chosen = [place for place, one in enumerate(ours) if one["flip"] in wanted]
        seconds = {}
        for method, side in (("greedy, by word importance", greedy), ("flips", ours)):
            seconds[method] = sum(side[place]["seconds"] for place in chosen)
            rows.append(
                Row(
                    TABLE,
                    {
                        "texts": f"{len(chosen)}, {kind}",
                        "method": method,
                        "flips": str(sum(side[place]["flip"] for place in chosen)),
                        "passes": str(sum(side[place]["passes"] for place in chosen)),
                        "CPU s": number(seconds[method]),
                    },
                )
            )
        faster[kind] = seconds["greedy, by word importance"] / max(seconds["flips"], 1e-9)
    missed = sum(bool(a["flip"]) and not b["flip"] for a, b in zip(greedy, ours, strict=True))
    case = f"flips, {MODEL}, {len(ours)} reviews, {size['candidates']}"
    measured = f"{faster['a flip exists']:.1f} where a flip exists, {faster['all']:.1f} over all texts"
    holds = min(faster.values()) >= 5
    found = [one["tried"] <= _SOON for one in ours if one["flip"]]
    soon = sum(found) / max(len(found), 1)
    return Outcome(
        tuple(rows),
        (
            Target(case, "5 times the texts per second of greedy search", measured, holds),
            Target(case, "no flip is missed", f"{missed} missed", missed == 0),
            Target(case, f"98% of the flips within {_SOON} tries", f"{soon:.0%} of {len(found)}", soon >= 0.98),
        ),
        ("A proof tries every candidate, whatever their order: there, only the passes per second differ.",),
    )
