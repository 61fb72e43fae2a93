"""What a worker process does first; it imports nothing heavy, so that a process whose runner died ends at once.

Loading PyTorch takes seconds: it is left to the first trial, when the process already watches its lifeline.
"""

from __future__ import annotations

import os
import pickle
import signal
import threading
from multiprocessing.connection import Connection
from typing import Any

from tqdm import tqdm


def start_worker(lifeline: Connection) -> None:
    """Prepare a worker process: it ends when the other end of the pipe closes, as it does when the runner dies.

    An interrupt from the keyboard is for the runner, which decides what becomes of the trials.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = "1"  # for libraries that a trial itself loads
    # Bars make a lock between processes for themselves: it would be reported as leaked where a worker is terminated.
    tqdm.set_lock(threading.RLock())

    def watch() -> None:
        try:
            lifeline.recv()
        except (EOFError, OSError):
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def call_pickled(pickled: bytes) -> Any:
    """Call a pickled function with pickled arguments.

    A pool's own unpickling ends the worker process where the function cannot be imported; here that is an error.
    """
    function, arguments, named = pickle.loads(pickled)
    return function(*arguments, **named)
