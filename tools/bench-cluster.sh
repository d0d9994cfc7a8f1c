#!/bin/bash
# The figures of a cluster of processes in docs/performance.md: see tools/bench_cluster/__main__.py.
set -eu
cd "$(dirname "$0")/.."
cargo build --release -p cairn -p cairn-bench -p cairn-faults
tools/libcairn.sh engine >&2
exec python3 tools/bench_cluster "$@"
