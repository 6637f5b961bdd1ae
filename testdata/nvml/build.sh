#!/usr/bin/env bash
# Builds the mock NVML into the folder given: libnvidia-ml.so.1, and old/libnvidia-ml.so.1, which lacks what a driver of
# 2021 (R470) lacked. Quick when nothing changed; the same sources and compiler give the same bytes. The header is the one
# that go-nvml carries.
set -euo pipefail
out=$(mkdir -p "$1/old" && cd "$1" && pwd)
cd "$(dirname "$0")"
newest=$out/libnvidia-ml.so.1
[[ -e $newest && -z $(find build.sh src ../../go.mod -newer "$newest" -print -quit) ]] && exit 0

cc=${CC:-cc}
if ! command -v "$cc" >/dev/null; then
  echo "gpupool: the mock NVML needs a C compiler (Debian: apt-get install gcc libc6-dev)." >&2
  exit 1
fi
go mod download github.com/NVIDIA/go-nvml
header=$(go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/pkg/nvml
temp=$(mktemp -d "$out/.build-XXXXXX") # beside the libraries: a rename there is whole, whoever else builds or loads them
trap 'rm -rf "$temp"' EXIT

# Every function of the header exists in a driver of today. Those that the mock has no use for say "not supported"; weak,
# so that the mock's own win.
sed 's,//.*,,' "$header/nvml.h" | grep -oE 'DECLDIR +nvml\w+' | awk '{print "__attribute__((weak)) int " $2 "(void) { return 3; }"}' |
  LC_ALL=C sort -u >"$temp/rest.c"
{
  echo '{ local:'
  sed 's/ *#.*//; /^$/d; s/$/;/' src/missing-in-470
  echo '};'
} >"$temp/old.map"

flags=(-std=gnu11 -O1 -g -fPIC -shared -Wall -Wextra -I"$header" -Wl,-soname,libnvidia-ml.so.1
  -ffile-prefix-map="$temp=." -ffile-prefix-map="$PWD=." -ffile-prefix-map="$header=.")
"$cc" "${flags[@]}" -o "$temp/old.so" src/*.c -Wl,--version-script="$temp/old.map" -lpthread
"$cc" "${flags[@]}" -o "$temp/new.so" src/*.c "$temp/rest.c" -lpthread
mv "$temp/old.so" "$out/old/libnvidia-ml.so.1"
mv "$temp/new.so" "$newest" # last: it says that both are there
