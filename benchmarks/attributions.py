"""Which word matters most: profiles against other attributions, judged by many real swaps of every word."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import spearmanr
from torch import Tensor

import wordsway as ws
from benchmarks.child import Child, job
from benchmarks.models import review_opening
from benchmarks.report import Outcome, Row, Target, number
from wordsway.data.reviews import short_reviews
from wordsway.models.ball import ball_profile
from wordsway.models.candidates import random_words
from wordsway.models.outputs import chosen_output
from wordsway.models.rewrites import Rewrite, Rewriter
from wordsway.models.words import Text, Word
from wordsway.seeds import generator

TABLE = "Which word matters most: judged by the mean effect of random words in the place of each"
MODEL = "minilm-sentiment"
REFERENCE = 1000  # seed of the random words that judge: not one of those that profiles use
PROFILE = ("masked", "typical", "worst")
STEPS, PASSES = 32, 200  # of integrated gradients, and of Shapley values
Scores = NDArray[np.float64]


def held_out_texts(count: int, tokens: tuple[int, int]) -> list[str]:
    """Short reviews that the head of the classifier was not fitted to, with a number of tokens in a range."""
    model = ws.load(MODEL)
    texts, _ = short_reviews()
    order = generator(0, "sentiment").permutation(len(texts))[3000:]
    fitting = (texts[place] for place in order if tokens[0] <= len(model.tokens(texts[place])) <= tokens[1])
    return [text for text, _ in zip(fitting, range(count), strict=False)]


def _measured(text: Text) -> list[Word]:
    """Words, without punctuation marks."""
    return [word for word in text.scored if any(sign.isalnum() for sign in word.text)]


# Other attributions of the margin of a classifier: one number for each word


class Margins:
    """The log odds of the predicted class of a text, as plain code would compute them."""

    def __init__(self, model: Any, text: Text) -> None:
        self.network, self.ids, self.words = model.network, list(text.ids), _measured(text)
        self.mask, self.pad = (model.texts.backend.token_to_id(token) for token in ("[MASK]", "[PAD]"))
        self.table = model.network.get_input_embeddings().weight.detach()
        self.top = 0
        self.top = int(self.of_ids([self.ids])[0] < 0)

    def of(self, embedded: Tensor) -> Tensor:
        ones = torch.ones(embedded.shape[:2], dtype=torch.long)
        logits: Tensor = self.network(inputs_embeds=embedded, attention_mask=ones).logits
        return logits[:, self.top] - logits[:, 1 - self.top]

    def of_ids(self, texts: Sequence[Sequence[int]]) -> Tensor:
        with torch.no_grad():
            return self.of(self.table[torch.tensor(texts)])

    def masked(self, absent: Sequence[Word]) -> list[int]:
        gone = {token for word in absent for token in word.tokens}
        return [self.mask if place in gone else token for place, token in enumerate(self.ids)]

    def per_word(self, tokens: Tensor) -> Scores:
        return np.array([float(tokens[list(word.tokens)].sum().abs()) for word in self.words])


def gradient_norm(model: Any, text: Text) -> Scores:
    """The norm of the gradient in the embeddings of a word."""
    margins = Margins(model, text)
    embedded = margins.table[margins.ids][None].requires_grad_(True)
    (gradient,) = torch.autograd.grad(margins.of(embedded).sum(), embedded)
    return np.array([float(gradient[0, list(word.tokens)].norm()) for word in margins.words])


def ablation(model: Any, text: Text) -> Scores:
    """The change of the margin when all tokens of a word are masked."""
    margins = Margins(model, text)
    values = margins.of_ids([margins.ids, *(margins.masked([word]) for word in margins.words)])
    return np.asarray((values[1:] - values[0]).abs().double().numpy())


def integrated_gradients(model: Any, text: Text) -> Scores:
    """Gradients along the line from paddings to the text, whose special tokens stay, by the midpoint rule."""
    margins = Margins(model, text)
    own = {token for word in text.scored for token in word.tokens}
    baseline = [margins.pad if place in own else token for place, token in enumerate(margins.ids)]
    start, end = margins.table[baseline], margins.table[margins.ids]
    places = (torch.arange(STEPS) + 0.5) / STEPS
    points = (start + places[:, None, None] * (end - start)).requires_grad_(True)
    (gradients,) = torch.autograd.grad(margins.of(points).sum(), points)
    return margins.per_word(((end - start) * gradients.mean(0)).sum(1))


def shapley(model: Any, text: Text) -> Scores:
    """Shapley values by sampled orders in which words are unmasked."""
    margins = Margins(model, text)
    count = len(margins.words)
    source = generator(0, "orders")
    total = np.zeros(count)
    for _ in range(max(1, PASSES // count)):
        order = source.permutation(count)
        texts = [margins.masked([margins.words[place] for place in order[known:]]) for known in range(count + 1)]
        total[order] += np.diff(margins.of_ids(texts).double().numpy())
    return np.abs(total)


def in_ball(model: Any, text: Text) -> Scores:
    return np.asarray(ball_profile(model, text, _measured(text), on="class").values, np.float64)


OTHERS: dict[str, Callable[[Any, Text], Scores]] = {
    "ball": in_ball,
    "gradient norm": gradient_norm,
    "ablation": ablation,
    f"integrated gradients, {STEPS} steps": integrated_gradients,
    f"Shapley values, {PASSES} passes": shapley,
}


# Jobs


@job
def attributions(count: int, tokens: tuple[int, int], draws: int, threads: int) -> dict[str, Any]:
    """Scores of all methods, with their CPU time, and the reference, for each of some texts."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    model.profile("a warm start")
    return {"texts": [_compared(model, model.read(text), draws) for text in held_out_texts(count, tokens)]}


def _compared(model: Any, text: Text, draws: int) -> dict[str, Any]:
    words = _measured(text)
    rewriter, pool = Rewriter(model, text, chosen_output(model, text=text)), random_words(model, REFERENCE)
    reference = []
    for word in words:
        effects = rewriter.effects([Rewrite(word, one) for one in pool.written(word.text, 0, draws)])
        reference.append(float(effects.values.abs().mean()))
    begin = time.process_time()
    profile = model.profile(text)
    seconds = {name: time.process_time() - begin for name in PROFILE}
    effects_of = {one.word: one for one in profile.words}
    scores = {name: [abs(getattr(effects_of[word], name) or 0.0) for word in words] for name in PROFILE}
    for name, method in OTHERS.items():
        begin = time.process_time()
        scores[name] = method(model, text).tolist()
        seconds[name] = time.process_time() - begin
    leader = words.index(profile.leaders[0])
    return {
        "tokens": len(text.ids),
        "reference": reference,
        "scores": scores,
        "seconds": seconds,
        "leader": leader,
        "tied": len(profile.leaders),
    }


@job
def profile_seconds(n: int, runs: int, threads: int) -> dict[str, Any]:
    """CPU time of the default profile of a text of n tokens."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    model.profile("a warm start")
    text = review_opening(model, n)
    seconds = []
    for seed in range(runs):
        begin = time.process_time()
        profile = model.profile(text, seed=seed)
        seconds.append(time.process_time() - begin)
    return {"tokens": len(profile.text.ids), "passes": profile.passes, "seconds": sorted(seconds)[runs // 2]}


@job
def profile_seeds(count: int, tokens: tuple[int, int], seeds: int, threads: int) -> dict[str, Any]:
    """The words that lead for several seeds."""
    torch.set_num_threads(threads)
    model = ws.load(MODEL)
    leaders = [
        [[word.position for word in model.profile(text, seed=seed).leaders] for seed in range(seeds)]
        for text in held_out_texts(count, tokens)
    ]
    return {"leaders": leaders}


# The case


def compared(child: Child, size: Mapping[str, Any]) -> Outcome:
    """All methods on the same texts, and what the default profile must reach."""
    threads, shape = size["threads"], {"count": size["count"], "tokens": size["tokens"], "threads": size["threads"]}
    texts = child("attributions", draws=size["draws"], **shape)["texts"]
    rows = {name: _row(name, texts) for name in (*PROFILE, *OTHERS)}
    lengths = [text["tokens"] for text in texts]
    case = f"{MODEL}, {len(texts)} reviews of {min(lengths)} to {max(lengths)} tokens"
    lines = tuple(
        Row(
            TABLE,
            {
                "method": f"profile: {name}" if name in PROFILE else name,
                "spread in a text (CV)": f"{row['spread']:.2f}",
                "rank correlation": f"{row['correlation']:.2f}",
                "share of the best word's effect": f"{row['share']:.3f}",
                "CPU s": number(row["seconds"]),
            },
        )
        for name, row in rows.items()
    )
    share = float(np.mean([text["reference"][text["leader"]] / max(text["reference"]) for text in texts]))
    typical, rival = rows["typical"]["correlation"], rows["ablation"]["correlation"]
    claims = [
        Target(case, "the leading word has 0.97 of the best word's effect at least", f"{share:.3f}", share >= 0.97),
        Target(case, "rank correlation at least that of ablation", f"{typical:.2f}, {rival:.2f}", typical >= rival),
    ]
    for n, limit in size["limits"]:
        got = child("profile_seconds", n=n, runs=size["runs"], threads=threads)
        what = f"profile, {got['tokens']} tokens, {got['passes']} passes"
        measured = f"{number(got['seconds'])} CPU s"
        claims.append(Target(what, f"within {limit} CPU s", measured, got["seconds"] <= limit))
    leaders = child("profile_seeds", seeds=size["seeds"], **shape)["leaders"]
    named = [{places[0] for places in text if len(places) == 1} for text in leaders]
    different = sum(len(words) > 1 for words in named)
    sole = sum(len(places) == 1 for text in leaders for places in text)
    measured = f"{different} texts with two; {sole} of {sum(map(len, leaders))} profiles name one word, others a tie"
    claims.append(Target(case, f"no two words named over {size['seeds']} seeds", measured, different == 0))
    return Outcome(lines, tuple(claims))


def _row(name: str, texts: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    spread, correlation, share, seconds = [], [], [], []
    for text in texts:
        scores, reference = np.array(text["scores"][name]), np.array(text["reference"])
        spread.append(scores.std() / scores.mean())
        # scores that are all equal rank nothing
        correlation.append(float(spearmanr(scores, reference).statistic) if np.ptp(scores) > 0 else 0.0)
        share.append(reference[int(scores.argmax())] / reference.max())
        seconds.append(text["seconds"][name])
    names = ("spread", "correlation", "share", "seconds")
    return {
        key: float(np.mean(values)) for key, values in zip(names, (spread, correlation, share, seconds), strict=True)
    }
