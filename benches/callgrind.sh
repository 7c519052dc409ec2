#!/usr/bin/env bash
# Counts the instructions of one call of each kind, with valgrind's callgrind: a witness that does not
# mind what else the machine does. Prints `kind instructions`.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --profile bench -p actix-circuit-breaker-benches --bin instructions
binary="$(cargo metadata --format-version 1 --no-deps |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release/instructions"

count() {
    valgrind --tool=callgrind --callgrind-out-file=/dev/null "$binary" "$1" "$2" 2>&1 |
        sed -n 's/.*Collected : //p'
}

for kind in "${@:-bare call call_by_key call_rate_of_calls call_rate_of_time call_rejected \
    call_metered ask_bare ask ask_metered ask_rejected ask_bare_failing ask_failing ask_mediated}"; do
    for kind in $kind; do
        few="$(count "$kind" 1000)"
        many="$(count "$kind" 11000)"
        echo "$kind $(((many - few) / 10000))"
    done
done
