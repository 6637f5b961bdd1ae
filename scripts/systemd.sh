#!/usr/bin/env bash
# Installs systemd-analyze from Debian for the test that lets systemd read gpupool's unit, if it is missing. Nothing is
# started, and systemd does not become the init of this machine. Quiet when nothing is missing.
set -euo pipefail

command -v systemd-analyze >/dev/null && exit 0
if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "gpupool: systemd cannot be installed here (that takes root and apt-get): the unit is not verified." >&2
  [[ -z ${CI:-} ]] || exit 1
  exit 0
fi
echo "installing systemd (without systemd-sysv), whose systemd-analyze reads gpupool's unit in a test"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends systemd >/dev/null
