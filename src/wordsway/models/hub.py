"""Files of models and datasets on the hub: taken from the local hub cache, or else fetched into it."""

from pathlib import Path
from typing import Any

from wordsway.errors import InputError, MissingExtra

_PATIENCE = 5.0  # seconds to wait for the hub's answer


def fetch(model: str, name: str, commit: str | None = None, kind: str = "model") -> Path:
    """Return the path in the local hub cache of one file of a model; it is fetched where it is not there yet.

    Parameters
    ----------
    model
        Name on the hub, such as ``"bert-base-uncased"``.
    name
        File of the model. Nothing else is fetched, and nothing of what is fetched is run.
    commit
        State of the repository; unless told, the one that the cache knows as the main one, or else the newest.
    kind : {"model", "dataset"}
        What `model` is the name of.

    Raises
    ------
    InputError
        Where the file is not cached and the hub cannot be reached, refuses, or has no such file.
    MissingExtra
        Where huggingface_hub is not installed.

    Notes
    -----
    What is cached is used without asking the hub: it needs no connection, and the numbers stay the same when the
    repository changes. HF_HUB_OFFLINE, HF_HUB_CACHE, HF_ENDPOINT and HF_TOKEN mean what they mean to huggingface_hub.
    """
    try:
        import huggingface_hub as library
    except ImportError as error:
        raise MissingExtra.of(f"a {kind} from the hub needs huggingface_hub", "models") from error
    try:
        where: Any = {"revision": commit} if kind == "model" else {"revision": commit, "repo_type": kind}
        cached = library.try_to_load_from_cache(model, name, **where)
        if isinstance(cached, str):
            return Path(cached)
        # Asked once here, since the download asks six times, in half a minute, before it gives up.
        library.get_hf_file_metadata(library.hf_hub_url(model, name, **where), timeout=_PATIENCE)
        return Path(library.hf_hub_download(model, name, etag_timeout=_PATIENCE, **where))
    except Exception as error:  # errors of the HTTP library are passed on, and which library it is has changed
        raise InputError(_refusal(model, name, error, kind)) from error


def _refusal(model: str, name: str, error: Exception, kind: str) -> str:
    """Say in one line what must hold, what was got and what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return (
            "model must be minilm, a folder that exists or a name on the hub such as bert-base-uncased, "
            f"got {model!r}: check the path or the name"
        )
    if isinstance(error, errors.OfflineModeIsEnabled):
        return (
            f"the {kind} {model} must be in the local hub cache while HF_HUB_OFFLINE is set, got no {name} there: "
            "unset HF_HUB_OFFLINE, or give a local folder"
        )
    if isinstance(error, errors.GatedRepoError):
        return (
            f"the {kind} {model} must be open to you, got a gated repository: "
            "ask for access on its page and log in, or give a local folder"
        )
    if isinstance(error, errors.RepositoryNotFoundError):
        return (
            f"the {kind} {model} must be on the hub, got no such repository or a private one: "
            "check the name, or give a local folder"
        )
    if isinstance(error, errors.RemoteEntryNotFoundError):
        return (
            f"the {kind} {model} must have {name} on the hub, got no such file (pickled weights are never read): "
            "choose another model, or give a local folder that has it"
        )
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return (
        f"the {kind} {model} must be in the local cache or on a hub that can be reached, got {reason}: "
        "check the name and the connection, or give a local folder"
    )
