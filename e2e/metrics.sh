#!/bin/bash
# What Prometheus scrapes of a node, the alert rules, and where the time of I/O went.
# Time: 120 s.
. "$(dirname "$0")/lib.sh"

need metrics curl fio python3 || finish
promtool=$("$root/tools/promtool.sh") || { fail "promtool is to be had"; finish; }

start_demo --volume data:256M --volume idle:64M --cores 2
scrape() { curl -sSf "http://${admin#http://}/metrics" > "$work/metrics.txt"; }
# value METRIC: the value of the line that begins with METRIC.
value() { awk -v of="$1" '$1 == of { print $2 }' "$work/metrics.txt"; }
is() { local found; found=$(value "$1"); [ "$found" = "$2" ] || { echo "$1 is '$found' and not $2"; return 1; }; }
above() { awk -v found="$(value "$1")" -v least="$2" -v of="$1" \
    'BEGIN { if (found + 0 < least) { print of " is " found " and not " least " or more"; exit 1 } }'; }

check "1,000 writes and 500 reads over NBD" fio --name=w --ioengine=nbd --uri="$(field data nbd_uri)" --bs=4k --iodepth=8 \
    --size=4000k --rw=write --eta=never --name=r --stonewall --ioengine=nbd --uri="$(field data nbd_uri)" --bs=4k \
    --iodepth=8 --size=2000k --rw=read --eta=never
check "the node is scraped" scrape
promtool_takes_metrics() { "$promtool" check metrics < "$work/metrics.txt"; }
check "promtool finds nothing to say of the metrics" promtool_takes_metrics
check "every write is counted" is 'cairn_volume_operations_total{volume="data",operation="write"}' 1000
check "every read is counted" is 'cairn_volume_operations_total{volume="data",operation="read"}' 500
check "their bytes are" is 'cairn_volume_bytes_total{volume="data",operation="write"}' 4096000
check "none of a volume that rests" is 'cairn_volume_operations_total{volume="idle",operation="write"}' 0
check "the histogram holds every write" is 'cairn_io_seconds_count{door="nbd",operation="write"}' 1000
for stage in receive admit queue device send; do
    check "stage $stage holds every write" \
        is "cairn_io_stage_seconds_count{door=\"nbd\",operation=\"write\",stage=\"$stage\"}" 1000
done
check "the device took its time" above 'cairn_io_stage_seconds_sum{door="nbd",operation="write",stage="device"}' 0.001
check "all groups serve" is cairn_groups_serving "$(value cairn_groups)"

check "promtool takes the alert rules" "$promtool" check rules "$root/docs/alerts.yml"
check "each alert fires where it should, and nowhere else" "$promtool" test rules "$root/e2e/alerts-test.yml"
metrics_of_rules_exist() {
    local metric
    for metric in $(grep -oE '\b(cairn|process)_[a-z_]+' "$root/docs/alerts.yml" | sort -u); do
        grep -qE "^(# TYPE )?$metric[{ ]" "$work/metrics.txt" || { echo "an alert asks for $metric, which the node does not tell"; return 1; }
    done
}
"$cairn" volume create secret --size 16M --encrypt --key-file <(head -c 32 /dev/urandom | base64) > /dev/null 2>&1
scrape
check "what the alert rules ask for is told by the node" metrics_of_rules_exist

why() { "$cairn" why data > "$work/why.txt" && grep -q "^write *1000 *0 " "$work/why.txt" &&
    grep -q "of the time of the slowest went into '" "$work/why.txt"; }
check "'cairn why' counts the writes and says where the time went" why
why_json() { "$cairn" why data -o json | python3 -c '
import json, sys
told = json.load(sys.stdin)
write = next(of for of in told["operations"] if of["operation"] == "write")
assert write["count"] == 1000 and write["stages"]["device_ns"] > 0, write
totals = [sum(io["stages"].values()) for io in told["slowest"]]
assert totals and totals == sorted(totals, reverse=True), totals'; }
check "and tells programs the same, the slowest first" why_json
check "a volume that rests has nothing to tell" grep -q "no command was answered" <("$cairn" why idle)
refused() { ! "$cairn" why nothing > "$work/refused.out" 2>&1 && grep -q "no volume 'nothing'" "$work/refused.out"; }
check "a volume that is not there is refused" refused
check "the node is ready" curl -sSf "http://${admin#http://}/readyz"
stop_demo
finish
