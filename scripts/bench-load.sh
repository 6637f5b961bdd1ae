#!/usr/bin/env bash
# Measures durable submissions a second to gpupool (bolt, the default) beside durable enqueues a second of asynq, an
# established Go queue, on a real Redis that syncs every write: the same machine, disk and number of clients, one after
# the other, ROUNDS times. Starts both on free ports in a folder of their own below BENCH_DIR, and removes it.
set -euo pipefail
cd "$(dirname "$0")/.."

clients=${CLIENTS:-64} seconds=${SECONDS_EACH:-10} rounds=${ROUNDS:-3}
command -v redis-server >/dev/null || {
  echo "bench-load: redis-server is not installed: apt-get install redis-server" >&2
  exit 1
}
dir=$(mktemp -d "${BENCH_DIR:-/var/tmp}/gpupool-bench.XXXXXX")
pids=()
cleanup() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null && wait "$p" 2>/dev/null || true; done
  rm -rf "$dir"
}
trap cleanup EXIT

go build -o "$dir/gpupool" ./cmd/gpupool
(cd tools/asynq && go build -o "$dir/asynq" .)
printf 'queue:\n  capacity: 0\n' >"$dir/config.yaml" # what is kept must fit
"$dir/gpupool" serve --config "$dir/config.yaml" --data "$dir/data" --listen 127.0.0.1:0 --fake 8xH100-80GB >"$dir/serve.log" 2>&1 &
pids+=($!)
socket=$((20000 + RANDOM % 20000))
redis-server --port "$socket" --bind 127.0.0.1 --dir "$dir" --appendonly yes --appendfsync always --save '' --protected-mode no >"$dir/redis.log" 2>&1 &
pids+=($!)
pool() { "$dir/gpupool" --data "$dir/data" "$@"; }
for _ in $(seq 100); do
  pool version >/dev/null && pool pools >/dev/null 2>&1 && break
  sleep 0.1
done
pool tenants create load >/dev/null 2>&1

value() { sed -n "s/.*\"$1\": *\([0-9.]*\).*/\1/p" | head -1; }
for i in $(seq "$rounds"); do
  pool loadtest --tenant load --keep --clients "$clients" --duration "${seconds}s" -o json >"$dir/ours.json"
  "$dir/asynq" -redis "127.0.0.1:$socket" -clients "$clients" -duration "${seconds}s" >"$dir/theirs.json"
  ours=$(value acknowledged_per_s <"$dir/ours.json") theirs=$(value acknowledged_per_s <"$dir/theirs.json")
  awk -v i="$i" -v a="$ours" -v b="$theirs" -v pa="$(value p99 <"$dir/ours.json")" -v pb="$(value p99_ms <"$dir/theirs.json")" -v c="$clients" 'BEGIN {
    printf "round %d, %d clients: gpupool on bolt %.0f durable submissions/s (p99 %.1f ms); asynq on Redis, fsync always, %.0f durable enqueues/s (p99 %.1f ms); ratio %.2f\n", i, c, a, pa, b, pb, a / b }'
done
