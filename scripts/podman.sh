#!/usr/bin/env bash
# Installs podman and what its tests need from Debian, if it is missing. No service is started. Quiet when nothing is
# missing.
set -euo pipefail

missing=()
command -v podman >/dev/null || missing+=(podman)
command -v crun >/dev/null || missing+=(crun)
command -v runc >/dev/null || missing+=(runc) # where control groups of both versions are mounted crun runs nothing
command -v catatonit >/dev/null || missing+=(catatonit)
command -v busybox >/dev/null || missing+=(busybox-static)
[[ -e /usr/share/containers/seccomp.json ]] || missing+=(golang-github-containers-common)
[[ ${#missing[@]} -gt 0 ]] || exit 0

if [[ $(id -u) != 0 ]] || ! command -v apt-get >/dev/null; then
  echo "gpupool: ${missing[*]} cannot be installed here (that takes root and apt-get): tests of containers are skipped." >&2
  [[ -z ${CI:-} || $(uname) != Linux ]] || exit 1
  exit 0
fi

# Debian's packages start their services, unless a policy says no.
policy=/usr/sbin/policy-rc.d
if [[ ! -e $policy ]]; then
  trap 'rm -f "$policy"' EXIT
  printf '#!/bin/sh\nexit 101\n' >"$policy"
  chmod +x "$policy"
fi
echo "installing ${missing[*]}, which the tests of containers need"
apt-get update -qq
DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
