# Machines, each with a node process of its own, and one etcd, all on ports of ::1. Sourced behind lib.sh, not run.
#
#   machine N COMMAND...    `cairn init` or `cairn join` as said on machine N; its device is $work/mN.img, its directory $work/mN
#   start N; serves N       its node; until it says ready
#   stop N                  SIGTERM; its exit status
#   admin_of N              where its admin API is
#   start_etcd; lose_etcd   the etcd at $etcd; kill -9, and nothing is left of it
#   load OPTIONS...         fio writes volume a at random, and compares

free_port() { python3 -c 'import socket; s = socket.socket(socket.AF_INET6); s.bind(("::1", 0)); print(s.getsockname()[1])'; }

declare -A node_pid
etcd_pid=
end_all() {
    local pid
    for pid in "${node_pid[@]}" $etcd_pid; do kill -TERM "$pid" 2> /dev/null; done
    for pid in "${node_pid[@]}" $etcd_pid; do wait "$pid" 2> /dev/null; done
    cleanup
}
trap end_all EXIT

machine() {
    local number=$1; shift
    "$cairn" "$@" --etcd "$etcd" --listen ::1 --device "$work/m$number.img" --dir "$work/m$number" \
        --nvme-port 0 --nbd-port 0 --admin-port 0 --peers-port "${peers[$number]}" --cores 1
}
start() {
    : > "$work/ready$1"
    "$cairn" node run --config "$work/m$1/node.toml" > "$work/ready$1" 2>> "$work/demo.log" &
    node_pid[$1]=$!
}
serves() {
    local tries
    for tries in $(seq 300); do grep -q '^ready' "$work/ready$1" && return 0; sleep 0.1; done
    return 1
}
admin_of() { sed -n 's/^ready.* admin=\([^ ]*\).*/\1/p' "$work/ready$1"; }
stop() { kill -TERM "${node_pid[$1]}" && wait "${node_pid[$1]}"; local status=$?; unset "node_pid[$1]"; return $status; }
load() {
    fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=48M \
        --verify=crc32c --verify_fatal=1 --eta=never "$@"
}

client_port=$(free_port) peer_port=$(free_port)
etcd="http://[::1]:$client_port"
start_etcd() {
    etcd --data-dir "$work/etcd" --listen-client-urls "$etcd" --advertise-client-urls "$etcd" \
        --listen-peer-urls "http://[::1]:$peer_port" --initial-advertise-peer-urls "http://[::1]:$peer_port" \
        --initial-cluster "default=http://[::1]:$peer_port" > "$work/etcd.log" 2>&1 &
    etcd_pid=$!
    local tries
    for tries in $(seq 100); do python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health")' "$etcd" 2> /dev/null && return 0; sleep 0.1; done
}
start_etcd
declare -A peers
for number in 1 2 3 4 5; do
    truncate -s 1G "$work/m$number.img"
    peers[$number]=$(free_port)
done
lose_etcd() {
    kill -KILL "$etcd_pid"
    wait "$etcd_pid" 2> /dev/null
    rm -r "$work/etcd"
}
