#!/usr/bin/env bash
# Checks what building needs, and fetches what is missing: setup.sh [race|browser]. Quiet when nothing is.
# With "race" it also wants a C compiler, which Go's race detector needs; with "browser" a Chromium, in which the page is tested.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() {
  printf 'gpupool: %s\n' "$@" >&2
  exit 1
}

wanted=$(awk '$1 == "go" {print $2}' go.mod)

need_go() {
  command -v go >/dev/null || fail \
    "Go is not installed (or not in PATH); version $wanted or later is needed." \
    "Install it from https://go.dev/dl/ and run make again, for example:" \
    "  curl -fsSL https://go.dev/dl/go$wanted.$(uname -s | tr A-Z a-z)-$(uname -m | sed 's/x86_64/amd64/; s/aarch64/arm64/').tar.gz | tar -C /usr/local -xz" \
    "  export PATH=\$PATH:/usr/local/go/bin"
  # Go 1.21 and later fetch the toolchain that go.mod names by themselves, unless GOTOOLCHAIN forbids it.
  local have
  have=$(go env GOVERSION 2>/dev/null | sed 's/^go//; s/[ -].*//') || true
  [[ -n $have ]] || fail \
    "$(go version 2>&1 | head -n 1)" \
    "go.mod needs Go $wanted or later. Install it from https://go.dev/dl/, or let Go fetch it: GOTOOLCHAIN=auto make"
  [[ $(printf '%s\n' "$wanted" "$have" | sort -V | head -n 1) == "$wanted" ]] || fail \
    "go.mod needs Go $wanted or later, and this is $have." \
    "Install it from https://go.dev/dl/ and run make again."
}

need_cc() {
  local cc
  cc=$(go env CC)
  command -v "${cc%% *}" >/dev/null && return
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing gcc, which the race detector needs"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y gcc libc6-dev >/dev/null
  else
    fail "The race detector needs a C compiler, and ${cc%% *} is not in PATH." \
      "Install one (Debian, Ubuntu: sudo apt-get install gcc libc6-dev; macOS: xcode-select --install) and run make again."
  fi
}

# Without a browser its tests are passed over, except in CI: nobody has to have one to work on the rest.
need_browser() {
  local name
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    command -v "$name" >/dev/null && return
  done
  if [[ $(id -u) == 0 ]] && command -v apt-get >/dev/null; then
    echo "installing chromium, in which the page is tested"
    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends chromium >/dev/null && return
  fi
  if [[ -n ${CI:-} ]]; then
    fail "The page is tested in Chromium, and it could not be installed."
  fi
  echo "no Chromium: the page is not tested (Debian, Ubuntu: sudo apt-get install chromium; macOS: brew install --cask google-chrome)" >&2
}

# Says so only if the download is still at work after a moment, as on a fresh clone.
need_modules() {
  go mod download || fail "The modules could not be fetched: is there a network, and what is GOPROXY ($(go env GOPROXY))?"
}

need_go
case ${1:-} in
race) need_cc ;;
browser) need_browser ;;
*) need_modules ;;
esac
