#!/bin/bash
# cairn bench: measures a volume by NBD and a file, keeps and draws it, and refuses to compare what is not alike.
# Profiles with clusters of their own say what each layer costs, and what a host sees of a fault.
# Time: 300 s (two minutes).
. "$(dirname "$0")/lib.sh"

need bench fio python3 || finish

check "of what make bench-cluster measures each part is kept" python3 "$root/tools/bench_cluster/tests.py"
start_demo --device-size 2G --volume a:128M --volume b:128M --volume small:1M

# json FILE STATEMENTS: about what FILE holds, in Python.
json() { python3 -c 'import json, sys; j = json.load(open(sys.argv[1])); exec(sys.argv[2])' "$@"; }
# refused WORDS COMMAND...: exit status 1, and one line on standard error that has the words.
refused() {
    local words=$1 status; shift
    "$@" > "$work/refused.out" 2> "$work/refused.err"; status=$?
    cat "$work/refused.err"
    [ $status = 1 ] && [ "$(wc -l < "$work/refused.err")" = 1 ] && grep -qF -- "$words" "$work/refused.err"
}
out=$work/results

check "a volume and a file are measured" "$cairn" bench eight --quick --target cairn:a --target "file:$work/file.img" --size 32M --out "$out"
result=$(echo "$out"/eight-*.json)
check "all figures are there" json "$result" '
assert (j["format"], j["version"], j["profile"], j["quick"]) == ("cairn-bench", 1, "eight", True)
volume, file = j["targets"]
assert (volume["target"], volume["setting"]["copies"], file["setting"]["copies"]) == ("cairn:a", "1", "1")
assert volume["setting"]["checksums"] == "crc32c" and file["setting"]["checksums"] == "none"
for target in j["targets"]:
    assert len(target["cases"]) == 8
    for case in target["cases"]:
        median, load = case["median"], case["case"]
        latency = median["latency"]
        assert median["iops"] > 0 and median["mib_per_second"] > 0, case
        assert 0 < latency["p50_us"] <= latency["p90_us"] <= latency["p99_us"] <= latency["p999_us"] <= latency["max_us"] * 1.01, latency
        # fio counts the bytes of I/Os that began in the warm-up, but not these I/Os: at most depth x jobs of them.
        counted, moved = median["iops"] * 0.7, median["mib_per_second"] * 2**20 / load["block_size_bytes"] * 0.7
        assert abs(moved - counted) <= load["depth"] * load["jobs"] + 0.05 * moved, case
        for sample in case["samples"]:
            assert sample["ping_pong_per_second"] > 0
            assert (sample["read"] is None) == (load["read_percent"] == 0) and (sample["write"] is None) == (load["read_percent"] == 100)
            assert sample["all"]["ios"] <= sum(bucket["ios"] for bucket in sample["all"]["histogram"])
fsync = volume["cases"][0]
assert fsync["case"]["fsync"] and fsync["median"]["sync_mean_us"] > 0
# Each case is long enough to be looked at on a quiet machine; on a busy one some are not.
assert sum(case["median"]["machine_cpu_us_per_io"] is not None for case in volume["cases"]) >= 4
busy = [case["median"] for case in volume["cases"] if "cairn" in case["median"]["process_cpu_us_per_io"]]
assert len(busy) >= 4 and all(median["resident_bytes"] > 0 for median in busy), volume
written = [case["median"]["device_write_bytes_per_client_byte"] for case in volume["cases"][:4]]
assert any(bytes is not None and bytes > 0.3 for bytes in written), written
'
check "the CSV has a line for each case" sh -c '[ "$(wc -l < "$1")" = 17 ]' - "${result%.json}.csv"
check "the report is one file that asks for nothing else" python3 -c '
import re, sys
page = open(sys.argv[1]).read()
assert page.count("<svg") >= 16 and "4k random write, depth 1, fsync" in page and "cairn:a" in page
assert not re.search(r"src=|href=|url\(|@import|<script|<link|<img", page)
assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", page)
assert "Apart: another setting" in page' "${result%.json}.html"
check "it is listed" sh -c '"$1" bench ls "$2" | grep -q "eight (quick).*cairn:a"' - "$cairn" "$out"

check "unlike runs are refused, and the field is named" refused "checksums is 'crc32c' and 'none'" "$cairn" bench report "$result"
check "and shown apart if asked" sh -c '"$1" bench report "$2" --context | grep -q "not to be compared with the first"' - "$cairn" "$result"
check "another volume is measured alike" "$cairn" bench eight --quick --target cairn:b --size 32M --out "$work/b"
check "and again" "$cairn" bench eight --quick --target cairn:b --size 32M --out "$work/b" --overwrite
check "alike runs are compared" sh -c '"$1" bench report "$2"/*.json --html "$2/both.html" | grep -q "x1.00"' - "$cairn" "$work/b"
check "and drawn" grep -q "to the first" "$work/b/both.html"

# Nobody's data is written over unasked.
check "a volume that holds something is refused" refused "--overwrite" "$cairn" bench eight --quick --target cairn:a --out "$out"
check "a file that holds something is refused" refused "--overwrite" "$cairn" bench eight --quick --target "file:$work/file.img" --out "$out"
check "what cannot be looked at is refused" refused "--overwrite" "$cairn" bench eight --quick --target "nbd://127.0.0.1:$nbd_port/b" --out "$out"
check "too small a volume is refused" refused "too few" "$cairn" bench eight --quick --target cairn:small --out "$out"
check "a volume that is not there is refused" refused "none" "$cairn" bench eight --quick --target cairn:none --out "$out"

# A fio without the engine: what this machine's says, less one line.
cat > "$work/fio" <<'FIO'
#!/bin/sh
fio "$@" | grep -v '^[[:space:]]*nbd$'
FIO
chmod +x "$work/fio"
check "a fio without the engine is told as such" refused "has no engine 'nbd'" "$cairn" bench eight --quick --target cairn:b --overwrite --fio "$work/fio" --out "$out"
check "no fio is told as such" refused "install it" "$cairn" bench eight --quick --target cairn:b --overwrite --fio "$work/none" --out "$out"

stop_demo

# Clusters of its own. The medium is memory where there is some: the machine's disk is no matter here.
memory=$work; [ -w /dev/shm ] && memory=/dev/shm
left() { ls -d "$memory"/cairn-bench.*/ 2> /dev/null | wc -l; }
before=$(left)
check "layers are measured on clusters of its own" "$cairn" bench layers --quick --dir "$memory" --out "$work/layers"
result=$(echo "$work"/layers/layers-*.json)
check "each layer has its setting, and stands on another" json "$result" '
layers = {target["layer"]["name"]: target for target in j["targets"]}
wanted = ["device", "one node", "one copy", "two copies", "three copies", "remote head", "encrypted", "lz4", "fresh", "after a snapshot"]
assert [name for name in layers if name != "store"] == wanted, list(layers)
for name, target in layers.items():
    assert name == "device" or target["layer"]["over"] in layers, target["layer"]
    assert len(target["cases"]) == 2
    for case in target["cases"]:
        assert case["median"]["iops"] > 0 and case["median"]["latency"]["mean_us"] > 0, (name, case)
setting = {name: target["setting"] for name, target in layers.items()}
assert [setting[name]["copies"] for name in wanted] == ["1", "1", "1", "2", "3", "3", "3", "3", "3", "3"]
base = setting["three copies"]
differs = {name: {field for field in base if its.get(field) != base[field]} for name, its in setting.items()}
assert differs["encrypted"] == {"encryption"} and differs["two copies"] == {"copies"} and differs["remote head"] == {"locality"}, differs
assert differs["lz4"] == {"compression", "fill"} and differs["fresh"] == differs["after a snapshot"] == {"fill"}, differs
assert len({its["media"] for its in setting.values()}) == 1
written = layers["three copies"]["cases"][-1]["median"]
assert written["device_write_bytes_per_client_byte"] is None or written["device_write_bytes_per_client_byte"] > 2, written
'
check "the report says what each adds" sh -c 'grep -q "What each layer adds" "$1" && grep -q "copies: 2 → 3" "$1"' - "${result%.json}.html"
check "layers of one run are no contestants of each other" sh -c '"$1" bench report "$2" | grep -q "three copies, other than two copies: copies: 2 → 3"' - "$cairn" "$result"
check "a fault is watched by a host" "$cairn" bench failure --quick --fault node-killed --dir "$memory" --out "$work/failure"
result=$(echo "$work"/failure/failure-*.json)
check "what it saw is told" json "$result" '
target, = j["targets"]
failure = target["failure"]
times = failure["times"]
assert failure["fault"] == "node-killed" and not target["cases"] and target["setting"]["copies"] == "3"
assert times["fault_seconds"] < times["mended_seconds"] and times["fault_seconds"] <= times["noticed_seconds"] < times["whole_seconds"], times
for field in ("first_read_seconds", "first_write_seconds", "to_whole_seconds"):
    assert failure[field] is not None and 0 < failure[field] < failure["watched_seconds"], (field, failure[field])
assert failure["longest_wait_seconds"] + 0.01 >= min(failure["first_read_seconds"], failure["first_write_seconds"])
assert failure["before"]["ios"] > 0 and failure["after"]["ios"] > 0 and failure["before"]["errors"] == 0
steps = failure["series"]
phases = [failure[phase]["ios"] for phase in ("before", "meanwhile", "after")]
assert abs(sum(step["ios"] for step in steps) - sum(phases)) <= failure["load"]["depth"], phases
assert all((step["p99_us"] is None) == (step["ios"] == 0) for step in steps)
assert len(failure["marks"]) == 4
'
check "its course is drawn, with what was done" grep -q "the node with the head is killed" "${result%.json}.html"
check "its CSV has a line for each step" sh -c '[ "$(wc -l < "$1")" -gt 20 ] && head -1 "$1" | grep -q at_seconds' - "${result%.json}.csv"
check "nothing is left of them" sh -c '[ "$1" = "$2" ]' - "$before" "$(left)"
finish
