# Machines, each with a node process of its own, and one etcd, all on ports of ::1. Sourced behind lib.sh, not run.
#
#   machine N COMMAND...    `cairn init` or `cairn join` as said on machine N; its device is $work/mN.img, its directory $work/mN
#   start N; serves N       its node; until it says ready
#   stop N                  SIGTERM; its exit status
#   kill_node N             kill -9 of both processes of its node at once, so that none tells of the other's end
#   begin_with_three        machines 1 to 3 are a cluster that is whole; the first is asked from then on
#   admin_of N              where its admin API is
#   start_etcd; lose_etcd   the etcd at $etcd; kill -9, and nothing is left of it
#   start_member N; kill_member N   one member of it, of which there are $etcd_members (1, unless it was set before); kill -9, what it had stays
#   load OPTIONS...         fio writes volume a at random, and compares
#
# NVMe and NBD ports are any, new at each start, unless nvme_ports and nbd_ports name some. Nodes reach each other at ::1, unless peers_at
# names another address for one; each has one core, unless machine_cores says more.

# A port that nobody has, below those that the system deals out: until it is used no connection that somebody opens takes it.
free_port() {
    python3 -c 'import random, socket
while True:
    port = random.randrange(10000, int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0]))
    try:
        socket.socket(socket.AF_INET6).bind(("::1", port))
        break
    except OSError:
        pass
print(port)'
}

declare -A node_pid etcd_pid nvme_ports nbd_ports peers_at
end_all() {
    local pid
    for pid in "${node_pid[@]}" "${etcd_pid[@]}"; do kill -TERM "$pid" 2> /dev/null; done
    for pid in "${node_pid[@]}" "${etcd_pid[@]}"; do wait "$pid" 2> /dev/null; done
    cleanup
}
trap end_all EXIT

machine() {
    local number=$1; shift
    "$cairn" "$@" --etcd "$etcd" --listen ::1 --device "$work/m$number.img" --dir "$work/m$number" \
        --nvme-port "${nvme_ports[$number]:-0}" --nbd-port "${nbd_ports[$number]:-0}" --admin-port 0 --peers-port "${peers[$number]}" \
        --cores "${machine_cores:-1}" ${peers_at[$number]:+--peers "${peers_at[$number]}"}
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
kill_node() {
    local worker
    worker=$(pgrep -P "${node_pid[$1]}")
    # Both are asked to end before either of them can run again.
    kill -STOP "${node_pid[$1]}"
    kill -KILL "${node_pid[$1]}" $worker
    wait "${node_pid[$1]}" 2> /dev/null
    unset "node_pid[$1]"
    [ -n "$worker" ]
}
load() {
    fio --name=a --ioengine=nbd --uri="$(field a nbd_uri)" --rw=randwrite --bs=4k --iodepth=8 --size=48M \
        --verify=crc32c --verify_fatal=1 --eta=never "$@"
}

declare -a client_url peer_url
etcd= initial= etcd_members=${etcd_members:-1}
for member in $(seq "$etcd_members"); do
    client_url[$member]="http://[::1]:$(free_port)" peer_url[$member]="http://[::1]:$(free_port)"
    etcd=${etcd:+$etcd,}${client_url[$member]} initial=${initial:+$initial,}etcd-$member=${peer_url[$member]}
done
start_member() {
    etcd --name "etcd-$1" --data-dir "$work/etcd/$1" --listen-client-urls "${client_url[$1]}" --advertise-client-urls "${client_url[$1]}" \
        --listen-peer-urls "${peer_url[$1]}" --initial-advertise-peer-urls "${peer_url[$1]}" \
        --initial-cluster "$initial" >> "$work/etcd.log" 2>&1 &
    etcd_pid[$1]=$!
}
kill_member() {
    kill -KILL "${etcd_pid[$1]}"
    wait "${etcd_pid[$1]}" 2> /dev/null
    unset "etcd_pid[$1]"
}
start_etcd() {
    local tries member
    mkdir -p "$work/etcd"
    for member in $(seq "$etcd_members"); do start_member "$member"; done
    for tries in $(seq 100); do python3 -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health")' "${client_url[1]}" 2> /dev/null && return 0; sleep 0.1; done
}
start_etcd
declare -A peers
for number in 1 2 3 4 5; do
    truncate -s 1G "$work/m$number.img"
    peers[$number]=$(free_port)
done
lose_etcd() {
    local member
    for member in "${!etcd_pid[@]}"; do kill_member "$member"; done
    rm -r "$work/etcd"
}

begin_with_three() {
    local number
    check "a cluster begins" machine 1 init
    for number in 2 3; do check "machine $number joins" machine $number join; done
    for number in 1 2 3; do start $number; done
    for number in 1 2 3; do check "machine $number serves" serves $number; done
    export CAIRN_ADMIN=$(admin_of 1)
    check "the cluster is whole" until_it_is 30 'assert s["health"] == "healthy" and s["groups_serving"] == s["groups"] == 100, s' status
}
