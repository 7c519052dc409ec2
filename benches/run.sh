#!/usr/bin/env bash
# Builds and measures every figure of what a breaker costs. Rows for information come first, marked
# with `#`; then one line `name value` for each figure. About two minutes after compiling.
set -euo pipefail
cd "$(dirname "$0")/.."

cargo build --quiet --profile bench -p actix-circuit-breaker-benches --bins
binaries="$(cargo metadata --format-version 1 --no-deps |
    sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/release"

output="$(mktemp)"
trap 'rm -f "$output"' EXIT
for binary in figures memory; do
    "$binaries/$binary" | tee -a "$output" | grep '^#'
done
echo

for name in \
    closed_ask_over_bare \
    closed_ask_over_bare_cross \
    closed_ask_extra_allocs \
    guard_over_fastest_peer \
    guard_rate_over_fastest_peer \
    reject_over_fastest_peer \
    reject_allocs \
    reject_messages \
    guards_two_threads_over_one \
    guards_rate_two_threads_over_one \
    failing_ask_over_bare \
    mediated_ask_over_bare \
    trip_visible_micros_p99 \
    metrics_closed_ask_over_plain \
    metrics_closed_ask_over_plain_shared \
    bytes_per_idle_breaker \
    family_guard_over_single_guard \
    family_guards_two_threads_over_one \
    family_million_keys_create_ns \
    family_bytes_per_failing_key; do
    grep "^$name " "$output"
done
