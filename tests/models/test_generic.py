"""Networks of families that are not known: what is found out about them, and words that move inside them."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import wordsway as ws
from models import plain, tiny
from models import small_transformers as small
from wordsway.errors import InputError
from wordsway.models.ball import ball_profile
from wordsway.models.families import is_causal, positions_of

LAYERS = 3
N = 7
_SIZES = {"num_hidden_layers": LAYERS, "hidden_size": 24, "num_attention_heads": 3, "max_position_embeddings": 40}
_OPT = {**_SIZES, "ffn_dim": 20, "word_embed_proj_dim": 16}
_SIZES |= {"intermediate_size": 20}
_NARROW = {**_SIZES, "embedding_size": 16}
_SHARED = {**_SIZES, "num_key_value_heads": 3}
_SHORT = {"n_layer": LAYERS, "n_head": 3}
_T5 = {"d_model": 24, "d_kv": 8, "d_ff": 20, "num_layers": LAYERS, "num_heads": 3}
_XLM = {"emb_dim": 24, "n_layers": LAYERS, "n_heads": 3, "max_position_embeddings": 40}
_MIXED = ["full_attention", "conv", "full_attention"]

# configuration, class, options, whether it is causal, tokens that it reads, entries of an embedding
OTHERS: dict[str, tuple[str, str, dict[str, Any], bool, int, int]] = {
    "opt": ("OPTConfig", "OPTForCausalLM", _OPT, True, 40, 16),
    "gpt-neox": ("GPTNeoXConfig", "GPTNeoXForCausalLM", _SIZES, True, 40, 24),
    "bloom": ("BloomConfig", "BloomForCausalLM", {**_SHORT, "hidden_size": 24}, True, 2**20, 24),
    "gemma3": ("Gemma3TextConfig", "Gemma3ForCausalLM", {**_SHARED, "head_dim": 8, "sliding_window": 4}, True, 40, 24),
    "ctrl": ("CTRLConfig", "CTRLLMHeadModel", {**_SHORT, "n_embd": 24, "n_positions": 40, "dff": 20}, True, 40, 24),
    "lfm2": ("Lfm2Config", "Lfm2ForCausalLM", {**_SHARED, "layer_types": _MIXED}, True, 40, 24),
    "electra": ("ElectraConfig", "ElectraModel", _NARROW, False, 40, 16),
    "electra-classifier": ("ElectraConfig", "ElectraForSequenceClassification", _NARROW, False, 40, 16),
    "albert": ("AlbertConfig", "AlbertModel", _NARROW, False, 40, 16),
    "data2vec": ("Data2VecTextConfig", "Data2VecTextModel", _SIZES, False, 38, 24),
    "xlm": ("XLMConfig", "XLMModel", _XLM, False, 40, 24),
    "t5-encoder": ("T5Config", "T5EncoderModel", _T5, False, 2**20, 24),
    "xlnet": ("XLNetConfig", "XLNetModel", {"d_model": 24, "d_inner": 20, **_SHORT}, False, 2**20, 24),
}


def _make(name: str, **options: Any) -> Any:
    config, kind, given, *_ = OTHERS[name]
    return plain.make(config, kind, **given, **options)


def _clean(network: Any, ids: list[int], on: str | int) -> Tensor:
    """The features of the text itself."""
    phi = plain.features(network, ids, on)
    with torch.no_grad():
        return phi(phi.embedded)


@pytest.mark.parametrize("name", OTHERS)
def test_the_attributes_of_a_model(name: str) -> None:
    _, _, _, causal, positions, _ = OTHERS[name]
    model = ws.load(_make(name))
    assert (model.causal, model.positions, model.d, model.layers) == (causal, positions, 24, LAYERS)
    assert model.vocabulary == small.VOCABULARY


@pytest.mark.parametrize("vocabulary", [1, 2, 4])
def test_a_small_vocabulary_shows_as_much(vocabulary: int) -> None:
    for name in ("bert", "gpt2"):
        network = small.make(name, vocab_size=vocabulary, pad_token_id=0)
        assert is_causal(network.base_model, "a model") == small.SMALL[name].causal


def test_texts_as_long_as_the_positions_are_read(tmp_path: Path) -> None:
    network = _make("data2vec", vocab_size=200)
    model = ws.load(network, tokenizer=tiny.write_tokenizer(tmp_path, tiny.PIECES))
    assert len(ball_profile(model, "a " * 36, [0], mode="fast", steps=1).words) == 1
    with pytest.raises(InputError, match="at most 38 tokens"):
        model.read("a " * 37)


@pytest.mark.parametrize("limit", [None, 0, -1])
def test_a_configuration_without_positions_means_no_limit(limit: int | None) -> None:
    body = nn.Module()
    body.config = type("Config", (), {"max_position_embeddings": limit})()
    assert positions_of(body) == 2**20


@pytest.mark.parametrize("name", OTHERS)
def test_changes_are_those_of_plain_passes(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    network = _make(name)
    for on in plain.outputs(network):
        plain.check(network, on, derivatives=False)  # some round to float32 inside
    plain.one_at_a_time(monkeypatch)
    for on in plain.outputs(network) if OTHERS[name][3] else ():
        plain.check(network, on, derivatives=False)


@pytest.mark.parametrize(("name", "kept"), [("opt", True), ("gpt-neox", True), ("gemma3", False), ("lfm2", False)])
def test_decoders_keep_a_prefix_where_they_can(name: str, kept: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    response = plain.features(_make(name), plain.ids(), "last").along([(4,), (5,)])
    assert plain.rows_run(response, monkeypatch) == [N - 4 if kept else N]


@pytest.mark.parametrize("name", OTHERS)
def test_a_text_is_read_as_the_model_itself_reads_it(name: str) -> None:
    """Some tables scale what they hold, and some networks write into what they are given."""
    network = _make(name)
    ids = plain.ids()
    with torch.no_grad():
        expected = network.base_model(torch.tensor([ids]))[0][0]
    response = plain.features(network, ids, "last").along(plain.spans(N))
    kept = response.X.clone()
    response.change(plain.random_moves(N - 1, response.X).flatten(1))
    torch.testing.assert_close(response.base, expected, rtol=1e-9, atol=1e-9)
    assert torch.equal(response.X, kept)
    table = response.phi.model.embedded()
    assert table.shape == (small.VOCABULARY, OTHERS[name][5])
    torch.testing.assert_close(table[ids], response.X)


def test_replacements_are_scaled_as_the_words_are(tmp_path: Path) -> None:
    network = _make("gemma3", vocab_size=200)
    tokenizer = tiny.write_tokenizer(tmp_path, tiny.PIECES)
    model = ws.load(network, tokenizer=tokenizer)
    found = model.swaps("the film was long", 1, top=3, on="next")
    with torch.no_grad():
        shares = [
            network(torch.tensor([model.tokens(text)])).logits[0, -1].softmax(-1)
            for text in ("the film was long", *(swap.text for swap in found.swaps))
        ]
    for swap, share in zip(found.swaps, shares[1:], strict=True):
        assert swap.value == pytest.approx(float((share - shares[0]).abs().sum() / 2), rel=1e-6)


@pytest.mark.parametrize("name", ["albert", "electra-classifier", "opt"])
def test_a_model_that_gives_no_names_is_read_too(name: str) -> None:
    network = _make(name, return_dict=False)
    ids = plain.ids()
    for on in plain.outputs(network):
        torch.testing.assert_close(_clean(network, ids, on), _clean(_make(name), ids, on))
    assert network.config.return_dict is False


@pytest.mark.parametrize("both", [False, True])
def test_half_of_a_model_that_reads_and_writes_is_read_from_its_folder(both: bool, tmp_path: Path) -> None:
    """Its configuration may be that of the whole."""
    network = _make("t5-encoder").float()
    network.save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "is_encoder_decoder": both}))
    model = ws.load(str(tmp_path))
    assert type(model.network) is type(network)
    ids = plain.ids()
    phi = plain.model_features(model, ids, "last")
    torch.testing.assert_close(phi(phi.embedded), _clean(network, ids, "last"))


def test_what_is_no_stack_over_words_is_refused_in_one_line() -> None:
    import transformers

    tower: dict[str, Any] = {"hidden_size": 8, "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    image = {**tower, "image_size": 4, "patch_size": 2}
    pair: dict[str, Any] = {"text_config": tower, "vision_config": image, "projection_dim": 4}
    sound: dict[str, Any] = {**tower, "conv_dim": [4], "conv_stride": [2], "conv_kernel": [2]}
    sound |= {"num_feat_extract_layers": 1, "num_conv_pos_embeddings": 2, "num_conv_pos_embedding_groups": 1}
    for network in (
        transformers.CLIPModel(transformers.CLIPConfig(**pair)),
        transformers.CLIPTextModel(transformers.CLIPTextConfig(**tower, vocab_size=9)),
        transformers.Wav2Vec2Model(transformers.Wav2Vec2Config(**sound)),
    ):
        with pytest.raises(InputError, match=r"must (have a table of|be one stack of|take embeddings of)") as caught:
            ws.load(network)
        assert "\n" not in str(caught.value)


def test_a_network_that_looks_words_up_again_is_refused() -> None:
    """Gemma 3n adds rows of a second table in every layer, which embeddings alone do not have."""
    sizes: dict[str, Any] = {**_SIZES, "num_key_value_heads": 3, "head_dim": 8, "num_kv_shared_layers": 0}
    sizes |= {"intermediate_size": [20, 24, 28], "vocab_size_per_layer_input": 50, "hidden_size_per_layer_input": 8}
    network = plain.make("Gemma3nTextConfig", "Gemma3nForCausalLM", **sizes)
    with pytest.raises(InputError, match=r"must give the same for words and for their embeddings, got a relative"):
        ws.load(network)


def test_a_layer_that_gives_fewer_rows_than_tokens_is_refused() -> None:
    """Funnel transformers pool their rows on the way, and give all back at the end."""
    sizes = {"d_model": 24, "n_head": 3, "d_head": 8, "d_inner": 20, "block_sizes": [1, 2]}
    network, ids = plain.make("FunnelConfig", "FunnelModel", **sizes), plain.ids()
    assert _clean(network, ids, 1).shape == _clean(network, ids, "last").shape == (N, 24)
    for layer in (2, 3):
        with pytest.raises(InputError, match=rf"must return a row for each token, got 4 for {N}: measure on another"):
            plain.features(network, ids, layer).along([(0,)])


def test_a_width_may_be_given_for_each_layer() -> None:
    network, ids = _make("opt"), plain.ids()
    network.config.intermediate_size = [20, 24, 28]
    assert plain.features(network, ids, "last").batch_size(gradient=True) >= 1


def test_looking_at_a_network_draws_nothing() -> None:
    network = _make("albert")
    network.base_model.register_forward_pre_hook(lambda *_: torch.rand(1) and None)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1234)  # a state that looking does not start from
        state = torch.get_rng_state()
        is_causal(network.base_model, "albert")
        assert torch.equal(torch.get_rng_state(), state)
        ws.load(network)
        assert torch.equal(torch.get_rng_state(), state)


def test_a_network_that_returned_hidden_states_before_is_read_right() -> None:
    """transformers leaves hooks on it then, which copies do not have."""
    network = _make("albert")
    ids = plain.ids()
    with torch.no_grad():
        states = network(torch.tensor([ids]), output_hidden_states=True).hidden_states
    model = ws.load(network)
    hooks = [len(part._forward_hooks) for part in model.network.modules()]
    for layer, state in enumerate(states):
        phi = plain.model_features(model, ids, layer)
        torch.testing.assert_close(phi(phi.embedded), state[0], rtol=1e-12, atol=1e-12)
    assert [len(part._forward_hooks) for part in model.network.modules()] == hooks == [0] * len(hooks)
