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
# A build of its own, so that what is measured above does not know of Redis.
if command -v redis-server >/dev/null; then
    cargo build --quiet --profile bench -p actix-circuit-breaker-benches --features redis --bin shared
    "$binaries/shared" | tee -a "$output" | grep '^#'
else
    echo "# no redis-server was found: what sharing a record costs is not measured"
fi
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
    family_bytes_per_failing_key \
    redis_closed_roundtrips \
    redis_failure_roundtrips \
    redis_trip_propagation_ms_p99 \
    redis_closed_ask_over_local \
    redis_script_per_call_over_ours; do
    case "$name" in
        # Not there without a server, which was said above.
        redis_*) grep "^$name " "$output" || true ;;
        *) grep "^$name " "$output" ;;
    esac
done
