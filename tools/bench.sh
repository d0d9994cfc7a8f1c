#!/bin/bash
# The figures of docs/performance.md: see tools/bench.py.
set -eu
cd "$(dirname "$0")/.."
cargo build --release
exec python3 tools/bench.py "$@"
