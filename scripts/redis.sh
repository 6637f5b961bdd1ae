#!/usr/bin/env bash
# Installs Redis and its Sentinel from Debian for the tests that share a journal, if they are missing. Nothing is
# started: tests start their own on free ports. Quiet when nothing is missing.
set -euo pipefail

missing=()
command -v redis-server >/dev/null || missing+=(redis-server)
command -v redis-sentinel >/dev/null || missing+=(redis-sentinel)
command -v redis-cli >/dev/null || missing+=(redis-tools)
command -v ip >/dev/null || missing+=(iproute2)
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "gpupool: ${missing[*]} cannot be installed here (that takes root and apt-get): tests that need it are skipped." >&2
  [[ -z ${CI:-} ]] || exit 1
  exit 0
fi

# Debian's packages start their services, unless a policy says no.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
echo "installing ${missing[*]}, which the tests of the shared journal need"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
