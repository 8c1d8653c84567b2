#!/bin/sh
# Builds what is asked for, and no more: build.sh PYTHON THREADS CACHE OUT TARGET...
set -eu
python=$1 threads=$2 cache=$3 out=$4
shift 4
if [ -z "${CMAKE_GENERATOR:-}" ] && command -v ninja >/dev/null; then
  export CMAKE_GENERATOR=Ninja
fi
cmake -S "$(dirname "$0")" -B "$cache" -DPYTHON="$python"
cmake --build "$cache" --parallel "$threads" --target "$@"
for target; do
  cp "$cache/bin/$target" "$out/"
done
