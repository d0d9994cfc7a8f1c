#!/bin/bash
# Fuzzes every decoder and both protocol machines with libFuzzer and the address sanitizer, each target for a while.
#   tools/fuzz.sh [SECONDS [TARGET...]]     60 seconds each, or SECONDS; all targets of fuzz/targets.rs, or those named
# What is new is kept in target/fuzz/corpus, what fails in fuzz/findings. `make test` runs fuzz/corpus through the same
# functions with the stable compiler: add there what is worth keeping.
set -u
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift
host=$(rustc -vV | sed -n 's/^host: //p')
if ! rustc +nightly --version >/dev/null 2>&1; then
    echo "fuzzing needs a nightly compiler, for the sanitizer's sake, and there is none:" >&2
    echo "  rustup toolchain install nightly --profile minimal" >&2
    exit 2
fi
if ! command -v c++ >/dev/null; then
    echo "fuzzing needs a C++ compiler, which builds libFuzzer: apt-get install g++" >&2
    exit 2
fi

# What `cargo fuzz` sets.
export RUSTFLAGS="--cfg fuzzing -Zsanitizer=address -Cpasses=sancov-module -Ccodegen-units=1
 -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
 -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS=${RUSTFLAGS//$'\n'/}
target=${CARGO_TARGET_DIR:-$PWD/target}/fuzz
cargo +nightly build --release --manifest-path fuzz/Cargo.toml --target "$host" --target-dir "$target" || exit 1

targets=("$@")
[ ${#targets[@]} != 0 ] || mapfile -t targets < <(sed -n 's/^    ("\([a-z-]*\)",.*/\1/p' fuzz/targets.rs)
failed=
for name in "${targets[@]}"; do
    echo "== $name: $seconds s"
    mkdir -p "$target/corpus/$name" "fuzz/corpus/$name" fuzz/findings
    # A run that finds nothing says nothing but its last line.
    CAIRN_FUZZ_TARGET=$name "$target/$host/release/fuzz" "$target/corpus/$name" "fuzz/corpus/$name" \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=8192 \
        -artifact_prefix="fuzz/findings/$name-" -print_final_stats=1 > "$target/$name.log" 2>&1
    if [ $? != 0 ]; then
        failed="$failed $name"
        grep -aE "panicked|ERROR|SUMMARY|Test unit written" -A1 "$target/$name.log" | head -20
    fi
    grep -aE "^#[0-9]+.*(DONE|INITED)" "$target/$name.log" | tail -1
done
[ -z "$failed" ] || { echo "failed:$failed"; exit 1; }
echo "${#targets[@]} targets, $seconds s each: nothing found"
