#!/bin/sh
# Builds what is asked for, and no more, in CACHE/bin: build.sh PYTHON THREADS CACHE TARGET...
set -eu
python=$1 threads=$2 cache=$3
shift 3
cmake -G Ninja -S "$(dirname "$0")" -B "$cache" -DPYTHON="$python"
ninja -C "$cache" -j "$threads" -k 0 "$@"
