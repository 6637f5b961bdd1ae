#!/usr/bin/env bash
# Installs Prometheus, promtool and Alertmanager from Debian for the tests of deploy/, if they are missing. Nothing is
# started: tests start their own on free ports. Quiet when nothing is missing.
set -euo pipefail

missing=()
command -v promtool >/dev/null && command -v prometheus >/dev/null || missing+=(prometheus)
command -v prometheus-alertmanager >/dev/null || missing+=(prometheus-alertmanager)
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
echo "installing ${missing[*]}, which the tests of deploy/ need"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
