#!/usr/bin/env bash
# The page of the feature `admin` in a real browser. Installs Chromium and its driver from Debian's packages where they
# are missing, and leaves pictures in target/.
set -euo pipefail
cd "$(dirname "$0")/.."

source tests/debian.sh
needs chromium chromium fonts-dejavu-core
needs chromedriver chromium-driver

cargo test --locked --features admin --test page --no-run

log=$(mktemp)
# In a group of its own, so that browsers of a test that failed end with it.
setsid chromedriver --port=0 >"$log" 2>&1 &
driver=$!
trap 'kill -- "-$driver" 2>/dev/null || true; rm -f "$log"' EXIT

port=
for _ in $(seq 100); do
    port=$(sed -n 's/.*started successfully on port \([0-9]*\).*/\1/p' "$log")
    [ -n "$port" ] && break
    sleep 0.1
done
if [ -z "$port" ]; then
    cat "$log" >&2
    exit 1
fi

PAGE_DRIVER="http://127.0.0.1:$port" PAGE_PICTURES="$PWD/target" \
    cargo test --locked --features admin --test page -- --ignored --nocapture
