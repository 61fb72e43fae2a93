#!/bin/sh
# Install a lock, where each file must have one of its hashes: tools/install.sh PYTHON NAME, for requirements/NAME.txt
set -eu

python=$1
name=$2
# Quiet, though errors are still shown. Compiling all of torch takes a minute: Python compiles what is used when it is.
options="--quiet --quiet --no-input --disable-pip-version-check --no-compile --require-hashes"
folder=requirements
build=$(sed -n 's/^torch==\([^ ]*\).*/\1/p' requirements/runtime.txt)
if [ "$name" = offline ]; then
    options="$options --no-deps"
elif ! "$python" -m pip index versions torch 2>/dev/null | grep -qF "$build"; then
    folder=$(mktemp -d) # the same locks, with the build of torch that the package index has
    trap 'rm -rf "$folder"' EXIT
    cp requirements/*.txt "$folder"
    sed '/^torch==/,/[^\\]$/d' requirements/runtime.txt | cat - requirements/torch.txt >"$folder/runtime.txt"
fi
# shellcheck disable=SC2086 # the words of $options are separate arguments
"$python" -m pip install $options -r "$folder/$name.txt"
