#!/usr/bin/env bash
# make demo: what pooling does to a real trace, then a pool of eight fake H100s that runs real processes of three
# tenants. Needs nothing but bin/gpupool; leaves nothing running and nothing behind.
set -euo pipefail
cd "$(dirname "$0")/.."

gpupool=$PWD/bin/gpupool
trace=testdata/traces/itp+openb
cluster=${DEMO_HOSTS:-60x8xH100-80GB} # sized for static: see testdata/traces/README.md
data=$(mktemp -d)
server=

cleanup() {
  status=$?
  if [[ -n $server ]] && kill -0 "$server" 2>/dev/null; then
    # Tasks outlive the server by design, so end them first.
    "$gpupool" ps -o json 2>/dev/null | sed -n 's/^    "id": \([0-9]*\),$/\1/p' | xargs -r "$gpupool" cancel --wait >/dev/null 2>&1 || true
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$data"
  exit "$status"
}
trap cleanup EXIT
trap 'exit 130' INT TERM

title() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
say() { printf '\n$ gpupool %s\n' "$*"; "$gpupool" "$@"; }

title "1. A real trace, static and pooled (Microsoft ITP's arrivals, Alibaba openb's shapes)"
say simulate --trace "$trace" --hosts "$cluster"

title "2. How many GPUs does it need?"
say plan "$trace" --hosts "$cluster"

title "3. A pool of eight fake H100s that runs real processes"
export GPUPOOL_DATA=$data
unset GPUPOOL_TOKEN GPUPOOL_SERVER
"$gpupool" serve --fake 8xH100-80GB --listen 127.0.0.1:0 >"$data/serve.out" 2>"$data/serve.err" &
server=$!
for _ in $(seq 100); do
  [[ -s $data/serve.out ]] && break
  kill -0 "$server" 2>/dev/null || { cat "$data/serve.err" >&2; exit 1; }
  sleep 0.1
done
cat "$data/serve.out"

for tenant in vision speech llm; do
  "$gpupool" tenants create "$tenant" >"$data/$tenant.token" 2>/dev/null
done
as() { # as TENANT ARG...: gpupool with the tenant's own token
  local tenant=$1
  shift
  GPUPOOL_TOKEN=$(<"$data/$tenant.token") "$gpupool" "$@"
}
quiet() { as "$@" >/dev/null 2>&1; }

echo "three tenants submit 24 tasks: notebooks on sevenths, training on whole GPUs, a gang, one that fails"
for i in $(seq 6); do quiet vision submit --gpus 1/7 --name "notebook-$i" -- sh -c 'echo on $CUDA_VISIBLE_DEVICES; sleep 16'; done
for i in $(seq 6); do quiet speech submit --gpus 3g.40gb --name "finetune-$i" -- sh -c 'echo slices: $GPUPOOL_SLICES; sleep 14'; done
for i in $(seq 4); do quiet llm submit --gpus 20GiB --class inference --name "serve-$i" -- sleep 13; done
for i in $(seq 4); do quiet vision submit --gpus 1 --name "train-$i" -- sleep 9; done
quiet llm submit --gpus 2 --members 2 --name gang -- sh -c 'echo member $GPUPOOL_MEMBER of $GPUPOOL_MEMBERS on $GPUPOOL_HOST: $CUDA_VISIBLE_DEVICES; sleep 5'
quiet speech submit --gpus 0.3 --isolation shared --name shared-a -- sleep 8
quiet speech submit --gpus 0.3 --isolation shared --name shared-b -- sleep 8
failing=$(as speech submit --gpus 1/7 --name fails -o json -- sh -c 'echo "CUDA error: out of luck" >&2; exit 3' | sed -n 's/^  "id": \([0-9]*\),$/\1/p')
unlucky=$(as vision submit --gpus 8 --name wants-all -o json -- sleep 600 | sed -n 's/^  "id": \([0-9]*\),$/\1/p')

sleep 6 # past the first look at the real use of the slices
say ps
say gpus
say pools
say explain "$unlucky"
say cancel "$unlucky"

printf '\n$ gpupool run --gpus 1/7 -- sh -c ...   (as tenant llm)\n'
as llm run --gpus 1/7 --name hello -- sh -c 'echo "hello from task $GPUPOOL_TASK on $GPUPOOL_SLICES"'
printf '\n$ gpupool logs %s   (the one that failed)\n' "$failing"
as speech logs "$failing"
say explain "$failing"

printf '\nwaiting for the rest to end'
for _ in $(seq 60); do
  [[ $("$gpupool" ps -o json) == '[]' ]] && break
  printf .
  sleep 1
done
echo
say ps --all
say gpus

kill "$server"
wait "$server" || true
server=
left=$(pgrep -f "$data" || true)
if [[ -n $left ]]; then
  echo "processes are left over: $left" >&2
  exit 1
fi
title "done: nothing is left running. Next: bin/gpupool --help, README.md"
