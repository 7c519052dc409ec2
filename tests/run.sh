#!/usr/bin/env bash
# The one test command: everything that has to hold, in the order in which it is cheapest to fail.
# Needs nothing but Rust and redis-server, which it installs from Debian's packages where it is missing; uses
# cargo-nextest where it is installed.
set -euo pipefail
cd "$(dirname "$0")/.."
source tests/debian.sh

# Nobody debugs what is built here, and without debug information it is built in less time.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_TEST_DEBUG=0

# The optional features, each of which has to work alone, and the tests that show it. What else a feature has was
# tested with all of them together.
declare -A features=([admin]='admin' [metrics]='metrics*' [redis]='redis_store')
# The examples that end by themselves.
examples=(checkout supervision admin subscribe retry_inside two_step restart deliveries metrics fleet)

step() { printf '\n== %s\n' "$*"; }

for component in rustfmt clippy; do
    if ! cargo "${component/rustfmt/fmt}" --version >/dev/null 2>&1; then
        step "installing $component"
        rustup component add "$component"
    fi
done

step "format"
cargo fmt --check

step "clippy"
cargo clippy --locked --all-targets --all-features -- -D warnings

step "documentation"
RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features

step "layering"
cargo test --locked --quiet --test layering

if cargo nextest --version >/dev/null 2>&1; then
    run_tests() { cargo nextest run --locked --no-fail-fast --lib "$@"; }
else
    run_tests() { cargo test --locked --no-fail-fast --lib "$@"; }
fi

step "redis-server"
needs redis-server redis-server
redis-server --version

step "tests"
run_tests --tests --all-features

# In a folder of its own: the flag makes everything be built anew.
step "memory order of the gate, under loom"
RUSTFLAGS="--cfg breaker_loom" cargo test --locked --release --lib \
    --target-dir "${CARGO_TARGET_DIR:-target}/loom" gate::model

step "doctests"
cargo test --locked --doc --all-features

# So that the fleet does not pass without one.
export REDIS_SERVER=redis-server
for example in "${examples[@]}"; do
    step "example $example"
    cargo run --locked --quiet --all-features --example "$example"
done

step "no feature"
cargo clippy --locked --lib -- -D warnings
# What features add to is the shell; the rest was seen with all of them.
run_tests --test 'shell_*' --test hold --test tell --test family --test failure_metrics --test public_api

for feature in "${!features[@]}"; do
    step "feature $feature alone"
    cargo clippy --locked --lib --test "${features[$feature]}" --features "$feature" -- -D warnings
    run_tests --test "${features[$feature]}" --features "$feature"
done

step "everything passed"
