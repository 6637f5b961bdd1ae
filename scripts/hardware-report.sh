#!/usr/bin/env bash
# Collects what a machine with NVIDIA GPUs says of itself into a folder, for docs/hardware.md and for bug reports:
#
#   scripts/hardware-report.sh [FOLDER]          best as root, as most processes and devices are seen then
#
# It only reads: it never changes MIG mode, instances, clocks, power, ECC or persistence, never resets, starts no service
# and ends nothing. gpupool doctor writes one small file into the data folder and removes it. Nothing is sent anywhere.
set -uo pipefail

out=${1:-gpupool-hardware-$(date -u +%Y%m%dT%H%M%SZ)}
mkdir -p "$out" || exit 1
gpupool=$(command -v gpupool || command -v "$(dirname "$0")/../bin/gpupool" || true)

# keep FILE COMMAND...: what the command writes, and how it ended; a command that is not there is said to be so.
keep() {
  local file=$out/$1
  shift
  {
    printf '$ %s\n' "$*"
    if command -v "$1" >/dev/null; then
      timeout 60 "$@" 2>&1
      printf '[exit code %d]\n' $?
    else
      printf '[%s is not installed]\n' "$1"
    fi
  } >>"$file"
}

echo "reading; this takes about a minute" >&2
keep machine.txt date -u
keep machine.txt uname -srmv
keep machine.txt cat /etc/os-release
keep machine.txt nproc
keep machine.txt cat /proc/meminfo
keep machine.txt cat /sys/fs/cgroup/cgroup.controllers
keep machine.txt lspci -d 10de: -nn

keep gpus.txt nvidia-smi
keep gpus.txt nvidia-smi -L
keep gpus.csv nvidia-smi --query-gpu=index,name,uuid,pci.bus_id,driver_version,memory.total,memory.used,memory.reserved,utilization.gpu,utilization.memory,mig.mode.current,mig.mode.pending,persistence_mode,ecc.mode.current,compute_mode,temperature.gpu,power.draw --format=csv
keep gpus.txt nvidia-smi topo -m
keep query.txt nvidia-smi -q
keep query.xml nvidia-smi -q -x

# Twenty seconds of use, a line a second: what an idle GPU and one with a context read.
keep use.txt nvidia-smi dmon -s um -c 20
keep processes.txt nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv
keep processes.txt nvidia-smi pmon -s um -c 3
keep processes.txt fuser -v /dev/nvidia0

# MIG as it is: profiles, their placements, and what stands.
keep mig.txt nvidia-smi mig -lgip
keep mig.txt nvidia-smi mig -lgipp
keep mig.txt nvidia-smi mig -lcip
keep mig.txt nvidia-smi mig -lgi
keep mig.txt nvidia-smi mig -lci

keep driver.txt cat /proc/driver/nvidia/version
keep driver.txt cat /proc/driver/nvidia/params
keep driver.txt cat /proc/driver/nvidia-caps/mig-minors
keep driver.txt ls -lR /proc/driver/nvidia/capabilities
keep driver.txt ls -l /dev/nvidia0 /dev/nvidiactl /dev/nvidia-uvm /dev/nvidia-caps
keep driver.txt sh -c 'dmesg | grep -i -e NVRM -e xid | tail -n 200'

keep containers.txt podman info
keep containers.txt nvidia-ctk --version
keep containers.txt nvidia-ctk cdi list
keep containers.txt cat /etc/nvidia-container-runtime/config.toml

if [[ -n $gpupool ]]; then
  keep doctor.txt "$gpupool" version
  keep doctor.txt "$gpupool" doctor --verbose
  keep doctor.json "$gpupool" doctor --json
else
  echo "gpupool is neither in PATH nor in bin/: make build" >"$out/doctor.txt"
fi

cat >&2 <<END
$out holds the report. Before you give it to anyone, look at it: it names GPUs (UUIDs), programs that use them, and the kernel's
messages about them. To pack it: tar czf $out.tar.gz $out
END
