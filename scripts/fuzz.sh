#!/usr/bin/env bash
# Runs every fuzz target of the given packages (./...), one after another, for FUZZTIME (60s) each: fuzz.sh [PACKAGE...]
# A crash stops it; Go then leaves the input in the package's testdata/fuzz, where `go test` repeats it.
set -euo pipefail
cd "$(dirname "$0")/.."

found=0
for package in $(go list "${@:-./...}"); do
  listed=$(go test -list '^Fuzz' "$package") # ends the script if the package does not build
  for target in $(grep '^Fuzz' <<<"$listed" || true); do
    echo "fuzz $package $target (${FUZZTIME:-60s})"
    go test -run '^$' -fuzz "^$target\$" -fuzztime "${FUZZTIME:-60s}" "$package"
    found=$((found + 1))
  done
done
echo "fuzzed $found targets without a crash"
