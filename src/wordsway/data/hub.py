"""Files of models on the hub: taken from the local hub cache, or downloaded into it."""

from pathlib import Path

from wordsway.errors import InputError, MissingExtra

_TIMEOUT = 5.0  # seconds until a hub that does not answer counts as unreachable


def fetch(repository: str, name: str, commit: str | None = None) -> Path:
    """Return the path of one file of a repository in the local hub cache, downloading it if it is not there.

    Parameters
    ----------
    repository
        Name on the hub, such as ``"bert-base-uncased"``.
    name
        File in the repository. Nothing else is downloaded, and nothing of it is run.
    commit
        Commit of the repository; default: the main one as the cache knows it, or else the newest.

    Raises
    ------
    InputError
        If the file is not cached and the hub cannot be reached, refuses, or has no such file.
    MissingExtra
        If huggingface_hub is not installed.

    Notes
    -----
    Cached files are used without contacting the hub: this needs no connection, and numbers stay the same when the
    repository changes. HF_HUB_OFFLINE, HF_HUB_CACHE, HF_ENDPOINT and HF_TOKEN have their usual meaning.
    """
    try:
        import huggingface_hub as library
    except ImportError as error:
        raise MissingExtra.of("a model from the hub needs huggingface_hub", "models") from error
    try:
        cached = library.try_to_load_from_cache(repository, name, revision=commit)
        if isinstance(cached, str):
            return Path(cached)
        # One request of our own first: the download retries six times, for half a minute, before it fails.
        library.get_hf_file_metadata(library.hf_hub_url(repository, name, revision=commit), timeout=_TIMEOUT)
        return Path(library.hf_hub_download(repository, name, revision=commit, etag_timeout=_TIMEOUT))
    except Exception as error:  # errors of the HTTP library come through, and which library it is has changed
        raise InputError(_message(repository, name, error)) from error


def _message(repository: str, name: str, error: Exception) -> str:
    """Return one line: what must hold, what was received, what to do."""
    from huggingface_hub import errors

    if isinstance(error, errors.HFValidationError):
        return (
            "model must be minilm, a folder that exists or a name on the hub such as bert-base-uncased, "
            f"got {repository!r}: check the path or the name"
        )
    known = {
        errors.OfflineModeIsEnabled: f"be in the local hub cache while HF_HUB_OFFLINE is set, got no {name} there: "
        "unset HF_HUB_OFFLINE",
        errors.GatedRepoError: "be open to you, got a gated repository: ask for access on its page and log in",
        errors.RepositoryNotFoundError: "be on the hub, got no such repository or a private one: check the name",
        errors.RemoteEntryNotFoundError: f"have {name} on the hub, got no such file (pickled weights are never read): "
        "choose another model",
    }
    reason = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    other = f"be in the local cache or on a hub that can be reached, got {reason}: check the name and the connection"
    rule = next((rule for kind, rule in known.items() if isinstance(error, kind)), other)
    return f"the model {repository} must {rule}, or give a local folder"
