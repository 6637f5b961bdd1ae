#!/usr/bin/env bash
# Builds the fake driver library into the folder given: libcuda.so.1, and old/libcuda.so.1 without the checkpoint calls.
# Quick when nothing changed.
set -euo pipefail
out=$(mkdir -p "$1/old" && cd "$1" && pwd)
cd "$(dirname "$0")"
newest=$out/libcuda.so.1
[[ -e $newest && -z $(find . -newer "$newest" -print -quit) ]] && exit 0

cc=${CC:-cc}
if ! command -v "$cc" >/dev/null; then
  echo "gpupool: the fake libcuda needs a C compiler (Debian: apt-get install gcc libc6-dev)." >&2
  exit 1
fi
# Two builds at once end with one whole file all the same.
temp=$(mktemp -d "$out/.build-XXXXXX")
trap 'rm -rf "$temp"' EXIT
flags=(-std=gnu11 -O1 -g -fPIC -shared -Wall -Wextra -Wno-unused-function -Wl,-soname,libcuda.so.1)
"$cc" "${flags[@]}" -DOLD -o "$temp/old.so" cuda.c
"$cc" "${flags[@]}" -o "$temp/new.so" cuda.c
mv "$temp/old.so" "$out/old/libcuda.so.1"
mv "$temp/new.so" "$newest"
