#!/bin/bash
# cairn bench: measures a volume by NBD and a file, keeps and draws it, and refuses to compare what is not alike.
# Our own generator makes the same loads. Profiles with clusters of their own say what each layer costs, what a host sees of a fault, and the rest.
# Time: 600 s (five minutes).
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

eight() { "$cairn" bench eight --quick --target cairn:a --target "file:$work/file.img" --size 32M --out "$out" 2> "$work/progress"; }
check "a volume and a file are measured" eight
says() { for line; do grep -qxF -- "$line" "$work/progress" || { echo "no line '$line'"; return 1; }; done; [ "$(wc -l < "$work/progress")" = 18 ]; }
check "what is being done is told, a line each" says "filling cairn:a" "filling file:$work/file.img" \
    "1/8 4k random write, depth 1, fsync, 1 of 1, cairn:a" "8/8 4M sequential read, depth 16, 1 of 1, file:$work/file.img"
result=$(echo "$out"/eight-*.json)
check "all figures are there" json "$result" '
assert (j["format"], j["version"], j["profile"], j["quick"]) == ("cairn-bench", 2, "eight", True)
volume, file = j["targets"]
assert (volume["target"], volume["setting"]["copies"], file["setting"]["copies"]) == ("cairn:a", "1", "1")
assert volume["setting"]["checksums"] == "crc32c" and file["setting"]["checksums"] == "none"
storage = ("nodes", "node-cores", "min-in-sync", "placement", "limits")
assert [volume["setting"][field] for field in storage] == ["1", "1 each", "1", "gathered", "none"], volume["setting"]
assert [file["setting"][field] for field in storage] == ["none", "none", "1", "none", "none"], file["setting"]
# Nothing of a file goes over a network.
over_network = [[case["median"]["network_bytes_per_client_byte"] for case in target["cases"]] for target in (volume, file)]
assert any(bytes is not None for bytes in over_network[0]) and set(over_network[1]) == {None}, over_network
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

# What the nodes may do is part of what is compared.
check "a volume is given a limit" "$cairn" volume set b --iops 1000000
check "it is measured" "$cairn" bench eight --quick --target cairn:b --size 32M --out "$work/limited" --overwrite
check "and is not compared with what it was without" refused "limits is 'none' and '1000000 IOPS" "$cairn" bench report "$work"/b/*.json "$work"/limited/*.json
check "the limit is taken away" "$cairn" volume set b --iops none
check "an offered load is measured" "$cairn" bench mix --quick --target cairn:b --size 32M --rate 400 --out "$work/rate" --overwrite
check "it is no more than that, and told" json "$(echo "$work"/rate/mix-*.json)" '
target, = j["targets"]
assert target["setting"]["rate"] == "400"
# As many as there can be are tens of thousands.
assert all(0 < case["median"]["iops"] < 2000 for case in target["cases"]), [case["median"]["iops"] for case in target["cases"]]
'
check "a rate that cannot be divided is refused" refused "cannot be divided" "$cairn" bench mix --quick --target cairn:b --rate 3 --out "$out" --overwrite

# Our own generator: by NBD, where fio is held against it, and by NVMe/TCP.
check "our own generator measures beside fio" "$cairn" bench eight --quick --target cairn:a --target "cairn:a?by=own-nbd" --target "cairn:a?by=own-nvme" \
    --size 32M --overwrite --out "$work/own"
result=$(echo "$work"/own/eight-*.json)
check "it says as much as fio" json "$result" '
fio, nbd, nvme = j["targets"]
assert (nbd["target"], nvme["target"]) == ("cairn:a?by=own-nbd", "cairn:a?by=own-nvme")
assert fio["setting"]["fio"].startswith("fio-") and nbd["setting"]["fio"] == nvme["setting"]["fio"] == "none: cairn\u0027s own generator"
differs = {field for field in fio["setting"] if fio["setting"][field] != nbd["setting"].get(field)}
assert differs == {"fio"}, differs
for target in (nbd, nvme):
    assert len(target["cases"]) == 8
    for case in target["cases"]:
        sample, load, median = case["samples"][0], case["case"], case["median"]
        assert median["iops"] > 0 and sum(bucket["ios"] for bucket in sample["all"]["histogram"]) == sample["all"]["ios"] > 0, case
        assert 0 < median["latency"]["p50_us"] <= median["latency"]["p99_us"] <= median["latency"]["max_us"] * 1.01, median
        assert (sample["read"] is None) == (load["read_percent"] == 0) and (sample["write"] is None) == (load["read_percent"] == 100)
        assert (sample["sync"] is not None) == load["fsync"] and sample["spent"]["client_cores"] > 0, sample
        # As many are under way as the case says (Little), and those that began in the warm-up.
        outstanding = median["iops"] * median["latency"]["mean_us"] / 1e6
        assert outstanding <= load["depth"] * load["jobs"] * 1.5, (load["name"], outstanding)
        # Not those of one job of four alone.
        assert load["jobs"] == 1 or outstanding > load["depth"] * load["jobs"] * 0.4, (load["name"], outstanding)
'
check "its figures are no figures of fio" refused "fio is 'fio-" "$cairn" bench report "$result"
nqn=$(field b nqn) nsid=$(field b nsid)
check "any NVMe/TCP namespace and any NBD export are measured by it" "$cairn" bench mix --quick --size 32M --overwrite --out "$work/any" \
    --target "nvme-tcp://127.0.0.1:$nvme_port/$nqn?nsid=$nsid" --target "own-nbd://127.0.0.1:$nbd_port/b"
check "nothing is known of them but where they are" json "$(echo "$work"/any/mix-*.json)" '
for target in j["targets"]:
    assert target["setting"]["locality"] == "same-machine" and target["setting"].get("copies", "unknown") == "unknown", target["setting"]
    assert all(case["median"]["iops"] > 0 for case in target["cases"])
'
check "it loads one target at a time" refused "one target at a time" "$cairn" bench volumes --quick --overwrite --size 32M --out "$out" \
    --target "cairn:a?by=own-nvme" --target "cairn:b?by=own-nvme"
check "Vitastor without its engine is told as such" refused "vitastor-fio" "$cairn" bench mix --quick --overwrite --out "$out" \
    --target "vitastor:image?etcd=127.0.0.1:1&engine=$work/libfio_vitastor.so"
check "storage that nobody counts is refused" refused "--storage /proc" "$cairn" bench mix --quick --overwrite --out "$out" \
    --target "nbd://127.0.0.1:$nbd_port/b" --storage /proc

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
assert differs["encrypted"] == {"encryption"} and differs["two copies"] == {"copies", "min-in-sync"} and differs["remote head"] == {"locality"}, differs
assert differs["lz4"] == {"compression", "fill"} and differs["fresh"] == differs["after a snapshot"] == {"fill"}, differs
assert len({its["media"] for its in setting.values()}) == 1
written = layers["three copies"]["cases"][-1]["median"]
assert written["device_write_bytes_per_client_byte"] is None or written["device_write_bytes_per_client_byte"] > 2, written
'
check "the report says what each adds" sh -c 'grep -q "What each layer adds" "$1" && grep -q "copies: 2 → 3; min-in-sync: 1 → 2" "$1"' - "${result%.json}.html"
check "layers of one run are no contestants of each other" sh -c '"$1" bench report "$2" | grep -q "three copies, other than two copies: copies: 2 → 3"' - "$cairn" "$result"
check "a fault has no offered load" refused "--rate" "$cairn" bench failure --quick --rate 100 --out "$out"
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
# Each of the others for a moment. fields: what all of their targets must have.
fields='
for target in j["targets"]:
    assert target["setting"]["copies"] == "3" and target["setting"]["node-cores"] == "1 each", target["setting"]
    assert target["cases"] and all(case["median"]["iops"] > 0 and case["median"]["latency"]["mean_us"] > 0 for case in target["cases"]), target["target"]
targets = {target["target"]: target for target in j["targets"]}
cases = [[case["case"] for case in target["cases"]] for target in j["targets"]]
layers = [(target["layer"]["name"], target["layer"]["over"]) for target in j["targets"] if "layer" in target]
setting = lambda field: [target["setting"][field] for target in j["targets"]]
'
check "a plain and a striped volume are measured over the depth" "$cairn" bench depth --quick --dir "$memory" --out "$work/depth"
check "they are set in relation to each other" json "$(echo "$work"/depth/depth-*.json)" "$fields"'
assert layers == [("plain", None), ("striped", "plain")] and setting("placement") == ["gathered", "spread"], layers
assert all([case["depth"] for case in of] == [1, 16, 256] * 4 for of in cases), cases
'
check "many volumes of many clients are loaded at once" "$cairn" bench volumes --quick --dir "$memory" --out "$work/volumes"
check "of fifteen, five of each" json "$(echo "$work"/volumes/volumes-*.json)" "$fields"'
assert list(targets) == ["3 clients x 5 volumes"] and setting("span") == ["15 x 16777216"], setting("span")
assert [(case["block_size_bytes"], case["depth"], case["jobs"]) for case in cases[0]] == [(4096, 16, 1)] * 2 + [(524288, 16, 1)] * 2, cases
'
check "clients become more, on volumes that lie here and there" "$cairn" bench stress --quick --dir "$memory" --out "$work/stress"
check "with CPU and memory over time" json "$(echo "$work"/stress/stress-*.json)" "$fields"'
assert layers == [("gathered", None), ("spread", "gathered"), ("local", "gathered")] and setting("placement") == ["gathered", "spread", "gathered"], layers
assert all([case["jobs"] for case in of] == [1, 4] and all((case["read_percent"], case["depth"]) == (75, 64) for case in of) for of in cases), cases
moments = [moment for target in j["targets"] for case in target["cases"] for sample in case["samples"] for moment in sample.get("moments", [])]
assert moments and all(moment["resident_bytes"] > 0 for moment in moments), moments
'
check "nodes become more" "$cairn" bench scale --quick --dir "$memory" --out "$work/scale"
check "and each is held against fewer" json "$(echo "$work"/scale/scale-*.json)" "$fields"'
assert setting("nodes") == ["3", "4", "5"] and layers == [("3 nodes", None), ("4 nodes", "3 nodes"), ("5 nodes", "4 nodes")], layers
'
if [ "$(id -u)" = 0 ] && need network ip tc unshare nsenter; then
    check "slow links are measured" "$cairn" bench network --quick --dir "$memory" --out "$work/network"
    check "and told" json "$(echo "$work"/network/network-*.json)" "$fields"'
assert layers == [("gathered", None), ("spread", "gathered")] and all(target["link_bits_per_second"] == 10**9 for target in j["targets"]), layers
assert all("links of 1000 Mbit/s" in locality for locality in setting("locality")), setting("locality")
'
fi
check "a profile without a cluster of its own says so" refused "name a target" "$cairn" bench mix --quick --dir "$memory" --out "$out"
check "what is said of targets is not said of one" refused "--setting" "$cairn" bench depth --quick --dir "$memory" --setting copies=2 --out "$out"
check "nothing is left of them" sh -c '[ "$1" = "$2" ]' - "$before" "$(left)"
finish
