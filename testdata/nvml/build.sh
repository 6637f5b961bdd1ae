#!/usr/bin/env bash
# Builds the mock NVML into the folder given: libnvidia-ml.so.1, and old/libnvidia-ml.so.1, which lacks what a driver of
# 2021 (R470) lacked. Quick when nothing changed; the same sources and compiler give the same bytes. The header is the one
# that go-nvml carries. The folder root is what a machine with eight such GPUs has in /dev and /proc.
set -euo pipefail
out=$(mkdir -p "$1/old" && cd "$1" && pwd)
cd "$(dirname "$0")"
newest=$out/libnvidia-ml.so.1
exec 9>"$out/.lock"
flock 9 # tests of several packages begin with this
[[ -e $newest && -z $(find build.sh src ../../go.mod -newer "$newest" -print -quit) ]] && exit 0

cc=${CC:-cc}
if ! command -v "$cc" >/dev/null; then
  echo "gpupool: the mock NVML needs a C compiler (Debian: apt-get install gcc libc6-dev)." >&2
  exit 1
fi
go mod download github.com/NVIDIA/go-nvml
header=$(go list -m -f '{{.Dir}}' github.com/NVIDIA/go-nvml)/pkg/nvml
temp=$(mktemp -d "$out/.build-XXXXXX") # beside the libraries: a rename there leaves them whole for whoever has them loaded
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

# Nobody computes with these nodes: root makes them like /dev/null, for containers take nothing but devices.
root=$temp/root
mkdir -p "$root"/dev/nvidia-caps "$root"/proc/driver/{nvidia,nvidia-caps} "$root"/proc/sys/kernel/random
ln -s /proc/meminfo /proc/cpuinfo "$root/proc"
ln -s /proc/sys/kernel/random/boot_id "$root/proc/sys/kernel/random"
echo 'NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.105.08' >"$root/proc/driver/nvidia/version"
for node in nvidiactl nvidia-uvm nvidia{0..7} nvidia-caps/nvidia-cap{3..258}; do
  mknod "$root/dev/$node" c 1 3 2>/dev/null || touch "$root/dev/$node"
done
awk 'BEGIN {
  print "config 1\nmonitor 2"
  for (n = 3; gpu < 8; gpu++)
    for (gi = 0; gi < 16; gi++) printf "gpu%d/gi%d/access %d\ngpu%d/gi%d/ci0/access %d\n", gpu, gi, n++, gpu, gi, n++
}' >"$root/proc/driver/nvidia-caps/mig-minors"
rm -rf "$out/root"
mv "$root" "$out/root"

mv "$temp/new.so" "$newest" # last: it says that both are there
