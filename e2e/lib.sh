# What the end-to-end scripts share. Sourced, not run.
#
#   start_demo OPTIONS...   starts `cairn demo` on $work/d with free ports (or those of the options, all three); sets
#                           demo_pid, admin, nvme_port, nbd_port
#   stop_demo               SIGTERM, and fails unless it exits with 0 in time
#   check WHAT COMMAND...   runs it; its output is shown only if it fails
#   is ASSERTION COMMAND... of cairn's answer as JSON, s: holds now; until_it_is SECONDS ...: or within so many
#   within SECONDS COMMAND... it succeeds within so many, tried again and again
#   refused WHAT COMMAND... it fails, and says WHAT
#   order NAME ARGUMENTS... a command that foretells what it moves and begins it; as_foretold NAME: when that has ended, it was so, by and large
#   need NAME TOOL...       without one of the tools the proof NAME is skipped, which is a failure unless
#                           CAIRN_ALLOW_SKIP (a list of names) names it
#   finish                  prints the totals; the exit status is 1 if anything failed
#
# Every script has a directory of its own and ends only the processes that it started.

set -u
# What is told beside the checks.
exec 3>&1
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cairn=${CAIRN_BIN:-$root/target/release/cairn}
# What only tests run is built as the unit tests are: with the release's optimisation across crates each of them takes minutes.
tools=${CARGO_TARGET_DIR:-$root/target}/debug
work=$(mktemp -d "${TMPDIR:-/tmp}/cairn-e2e.XXXXXX")
passed=0 failed=0 skipped=0 demo_pid=

pass() { echo "ok    $*"; passed=$((passed + 1)); }
fail() { echo "FAIL  $*"; failed=$((failed + 1)); }

check() {
    local what=$1; shift
    if "$@" > "$work/check.out" 2>&1 < /dev/null; then
        pass "$what"
    else
        fail "$what (exit status $?): ${*%%$'\n'*}"
        tail -n 20 "$work/check.out" | sed 's/^/      /'
        return 1
    fi
}

need() {
    local name=$1 tool missing=; shift
    for tool in "$@"; do command -v "$tool" > /dev/null || missing="$missing $tool"; done
    [ -z "$missing" ] && return 0
    case " ${CAIRN_ALLOW_SKIP:-} " in
        *" $name "*) echo "skip  $name: no$missing"; skipped=$((skipped + 1)) ;;
        *) fail "$name: no$missing (install them with 'make deps', or set CAIRN_ALLOW_SKIP=$name)" ;;
    esac
    return 1
}

start_demo() {
    : > "$work/ready"
    local ports=(--nvme-port 0 --nbd-port 0 --admin-port 0)
    [[ " $* " == *" --nvme-port "* ]] && ports=()
    "$cairn" demo --dir "$work/d" "${ports[@]}" "$@" > "$work/ready" 2>> "$work/demo.log" &
    demo_pid=$!
    local tries
    for tries in $(seq 300); do
        grep -q '^ready' "$work/ready" && break
        kill -0 "$demo_pid" 2> /dev/null || break
        sleep 0.1
    done
    if ! grep -q '^ready' "$work/ready"; then
        fail "cairn demo says ready within 30 s"
        tail -n 20 "$work/demo.log" | sed 's/^/      /'
        finish
    fi
    admin=$(sed -n 's/^ready.* admin=\([^ ]*\).*/\1/p' "$work/ready")
    nvme_port=$(sed -n 's/^ready.* nvme=[^ ]*:\([0-9]*\).*/\1/p' "$work/ready")
    nbd_port=$(sed -n 's/^ready.* nbd=[^ ]*:\([0-9]*\).*/\1/p' "$work/ready")
    export CAIRN_ADMIN=$admin
}

stop_demo() {
    [ -n "$demo_pid" ] || return 0
    kill -TERM "$demo_pid"
    wait "$demo_pid"
    local status=$?
    demo_pid=
    if [ $status = 0 ]; then pass "cairn demo stops with exit status 0"; else fail "cairn demo stops with exit status $status"; fi
}

is() { "$cairn" "${@:2}" -o json | python3 -c "import json, sys; s = json.load(sys.stdin); $1"; }
until_it_is() {
    local tries
    for tries in $(seq $(($1 * 4))); do is "${@:2}" 2> /dev/null && return 0; sleep 0.25; done
    is "${@:2}"
}

# Again and again, until it succeeds.
within() {
    local tries
    for tries in $(seq $(($1 * 2))); do "${@:2}" > /dev/null 2>&1 && return 0; sleep 0.5; done
    "${@:2}"
}

refused() {
    local what=$1; shift
    ! "$@" > "$work/refused.out" 2>&1 < /dev/null && grep -qF -- "$what" "$work/refused.out" && return 0
    cat "$work/refused.out"
    return 1
}

order() {
    "$cairn" device ls -o json > "$work/$1.before" && date +%s.%N > "$work/$1.at" && "$cairn" "${@:2}" -o json > "$work/$1.order"
}
as_foretold() {
    local told
    told=$("$cairn" device ls -o json | python3 "$root/e2e/foretold.py" "$work/$1.before" "$work/$1.order" "$work/$1.at")
    local status=$?
    echo "      $1: $told" >&3
    return $status
}

# field NAME FIELD: one field of `cairn volume info`.
field() { "$cairn" volume info "$1" -o json | python3 -c 'import json, sys; print(json.load(sys.stdin)[sys.argv[1]])' "$2"; }

finish() {
    [ -n "$demo_pid" ] && { kill -KILL "$demo_pid" 2> /dev/null; wait "$demo_pid" 2> /dev/null; demo_pid=; }
    if [ $failed != 0 ] && [ -s "$work/demo.log" ]; then
        echo "      the last lines of cairn's log:"; tail -n 15 "$work/demo.log" | sed 's/^/      /'
    fi
    echo "e2e ${0##*/}: $passed passed, $failed failed, $skipped skipped"
    [ $failed = 0 ]
    exit
}

cleanup() {
    [ -n "$demo_pid" ] && { kill -KILL "$demo_pid" 2> /dev/null; wait "$demo_pid" 2> /dev/null; }
    rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM
