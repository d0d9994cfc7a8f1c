//! What `cairn help …` says beyond the flags: what a command does, units, examples, what it refuses.

/// All commands by what they are about; a test holds it against those there are.
pub(crate) const OVERVIEW: &str = "\
{about}

{usage-heading} {usage}

Serving:
  demo      Serve a whole cluster from one directory, in one process, until Ctrl-C
  init      Begin a cluster with this machine as its first node
  join      Make this machine a node of a cluster that is there
  node      What a machine of a cluster runs
  device    Devices: format, add, ls, drain, undrain, replace, rm, check

Volumes:
  volume    Volumes: create, ls, info, resize, set, rename, move, unlock, lock, rekey, delete
  host      NVMe hosts that may use volumes: allow, deny, ls
  snapshot  Snapshots of volumes: create, ls, delete, rollback, changes
  clone     Make a volume of a snapshot: it begins with what that holds, and shares its space
  trash     Deleted volumes that can still be restored: ls, restore, empty

The cluster:
  status    How the cluster is, why, what is being done, and when that ends
  events    What happened in the cluster, the newest last
  check     Read all copies from their devices, and compare them: 0 only if every copy of every block agrees
  group     Placement groups that nobody can serve, and whose copy counts: ls, force
  upgrade   What release each node runs, and going on to it for good: status, finish
  map       The cluster's map as a file: export, import, gather, rebuild
  debug     What a report of a fault needs: bundle
  why       Where the time of a volume's I/O goes, and its slowest commands
  pool      Pools: create, ls, info, set
  bench     Measure block storage with fio, or play a hazard: eight, depth, mix, volumes, stress, layers, failure, network, scale, report, hazard, ls
  torture   Prove durability: kill what serves a volume while it is used, and judge every answer

  help      Explain a command: `cairn help volume create`

Options:
{options}

Sizes are whole numbers with K, M, G or T, powers of 1,024: 10G, or 10GiB. An error is one line on standard error
that says what is wrong and what to do; the exit status is 1, for a wrong command line 2. Nothing is coloured.
";

pub(crate) const GROUP_FORCE: &str = "\
Examples:
  cairn group ls                                groups that nobody serves, and what each copy of them is like
  cairn group force --copy node-2 --all         what would be lost if the copies of node-2 counted; changes nothing
  cairn group force --copy node-2 --all --yes
  cairn group force --copy 3f9c 17 21 --yes     of groups 17 and 21 that of the store whose id begins so

For when nobody can know whose copy is right, or the right one is lost: all that held everything are gone for good, an
entry stops whoever applies it, or two maps had writes acknowledged. The copy that is named counts, whatever it lacks: what
others have and it has not IS LOST, also if they come back later. Wait for them first, if they may.

Refuses groups that go on by themselves when those are back who may lead them.";

pub(crate) const UPGRADE: &str = "\
Examples:
  cairn upgrade                 the release, protocol and features of each node, and what is in the way
  cairn upgrade finish          what will be; changes nothing
  cairn upgrade finish --yes

Upgrade one node after the other (stop it, install the release, start it), each when `cairn status` says healthy. Until it is
finished each can go back the same way: the cluster writes what the older release reads. Finished, it writes what all of its
nodes speak, and older releases can neither start nor join any more.

Refused while a node does not run, or is older than others: it is named.";

pub(crate) const DEMO: &str = "\
Examples:
  cairn demo                                   a device of 4G with a volume demo of 1G, from before or new
  cairn demo --dir /srv/cairn --device-size 100G --volume data:50G --volume logs:20G:4096
  cairn demo --nvme-port 0 --nbd-port 0 --admin-port 0    any free ports; the line `ready` says which
  cairn demo --listen 0.0.0.0                  lets other machines in, at this start
  cairn demo --dir three --nodes 3 --replicas 3    three nodes, each block on all of them; ports P, P+1, P+2
  cairn demo --dir apart --nodes 3 --replicas 3 --processes    the same, each node a process, over an etcd

The first call makes the directory; later ones open it. --volume names what must be there: what is not is made, but of
what the first call made nothing is made again, for it may have been renamed or deleted since.

Refuses a directory that another process serves, a device of another size than it has, a volume that is there
with another size, and two servers on one port.";

pub(crate) const NODE_RUN: &str = "\
Examples:
  cairn device format /dev/nvme1n1
  printf '[[device]]\\npath = \"/dev/nvme1n1\"\\n' > node.toml
  cairn node run --config node.toml

docs/node.md has every field of the file. Refuses devices that are not formatted, or of another cluster.";

pub(crate) const VOLUME_CREATE: &str = "\
Units:
  --size       1M to 64T, whole 4K; it takes space only for what is written
  --iops       commands in a second, 1 to 100,000,000
  --bandwidth  bytes in a second, 64K/s to 1T/s
  --burst      10ms to 1h, as 500ms, 10s, 5m, 1h

Examples:
  cairn volume create data --size 100G
  cairn volume create data --size 100G --iops 5000 --bandwidth 200M/s
  cairn volume create secret --size 10G --encrypt --key-file disk.key
  cairn volume create scratch --size 1T --pool fast --placement spread
  cairn volume create vm7 --size 50G --placement local:node-2

Gathered: one node, its home, leads and serves all of it: reads take no hop, writes one round trip to the other copies.
Spread: all devices of the pool serve it, each command may take one hop more. With one node both are the same.

Refuses a name that another volume has (`cairn volume rename` gives it another). A volume is encrypted from the
start or never; keep a copy of the key file, without it the data is lost.";

pub(crate) const VOLUME_RESIZE: &str = "\
Examples:
  cairn volume resize data --size 200G

NVMe hosts are told; NBD clients connect again to see it. Refuses a smaller size: volumes only grow.";

pub(crate) const VOLUME_SET: &str = "\
The limits are the volume's: over all hosts and both protocols together. Who asks for more waits; nothing fails. Running
I/O obeys within a second. What is not named stays as it is.

Examples:
  cairn volume set data --iops 5000 --bandwidth 200M/s
  cairn volume set data --burst 10s     what was not used in the last 10 s may be used at once
  cairn volume set data --iops none     no limit of commands any more

Refuses a burst without a limit, and numbers out of range: 1 to 100,000,000 IOPS, 64K/s to 1T/s, 10ms to 1h.
docs/qos.md says what counts and who waits.";

pub(crate) const VOLUME_MOVE: &str = "\
Examples:
  cairn volume move data node-2                connect hosts to node-2 first: they go on there
  cairn volume move data --placement spread    copy it to where all devices of its pool lead it
  cairn volume move data --placement local:node-2 --pool fast
  cairn volume move data --give-up             it stays where it is

To another node: no data is moved and no command fails: what is under way ends at the old node, and hosts send the rest to the new one.
It is the volume's home from now on: it comes back to it after a failure. Refused to a node that does not have the key
of a volume that is unlocked: `cairn volume unlock` gives it to all nodes.

With --placement what it holds, its snapshots included, is copied while hosts use it, at the pace of recovery; then they wait
for a moment, and it lies there. Its clones stay where they are, and share no space with it any more. Refused before
anything is copied: no room, more than 56 snapshots, a locked volume. A move whose head dies is given up: say it again.";

pub(crate) const VOLUME_RENAME: &str = "\
Examples:
  cairn volume rename data db

NVMe hosts and open NBD connections go on; NBD clients that come later open the new name. Its namespace, snapshots,
hosts and limits stay its own. Refuses a name that another volume has.";

pub(crate) const VOLUME_UNLOCK: &str = "\
Examples:
  cairn volume unlock secret --key-file disk.key
  pass show disk | cairn volume unlock secret --passphrase-file -

After each start of the node encrypted volumes are locked, unless it was given the key file.";

pub(crate) const VOLUME_REKEY: &str = "\
Examples:
  cairn volume rekey secret --key-file old.key --new-key-file new.key
  cairn volume rekey secret --key-file a.key --new-key-file b.key --add    both open it
  cairn volume rekey secret --key-file a.key --remove                      if another one opens it

Refuses to remove the last one.";

pub(crate) const VOLUME_DELETE: &str = "\
Examples:
  cairn volume delete data          into the trash: `cairn trash restore data` brings it back within 24 hours
  cairn volume delete data --now    for good: its space comes back

Refuses a volume that has snapshots: delete those first.";

pub(crate) const CHECK: &str = "\
Examples:
  cairn check                      all pools; 0 only if every copy of every block is there, is readable, and agrees
  cairn check --pool fast -o json

It runs beside clients, at the pace that they leave, and goes on if the command is stopped: the node that was asked
does it. What is being written meanwhile is looked at again until its copies have the same. What cannot be read is
mended from the other copies; what differs, scrub mends. A copy that is away or being brought up to date is told as not
compared. `cairn device check` reads one device that no node has open, without the cluster.";

pub(crate) const STATUS: &str = "\
What is not as it should be comes first, the most urgent at the top: cause, what one more loss would do, what is being done,
when that ends, and the command to run. 'note' is no fault. An end is told only once it is known how fast it goes, which takes
two looks.

Examples:
  cairn status
  cairn status --watch      drawn anew each second, until Ctrl-C
  cairn status -o json      the same for programs: 'findings'

The exit status is 0 whenever the cluster answers; docs/status.md has every sentence there is.";

pub(crate) const WHY: &str = "\
Every command is timed, always, in five stages: receive, admit, queue, device, send. Shown are the means of the last one
to two minutes, the slowest commands of that time, and the stage that most of theirs went into, with what to look at.

Examples:
  cairn why data
  cairn why data -o json    the same for programs, times in nanoseconds

docs/metrics.md says what takes long in which stage. Nothing is reset by looking.";

pub(crate) const HOST: &str = "\
Examples, with the host's name as `cat /etc/nvme/hostnqn` shows it on the host:
  cairn host allow data nqn.2014-08.org.nvmexpress:uuid:f81d4fae-7dec-11d0-a765-00a0c91e6bf6
  cairn host allow data any     every host
  cairn host deny data any      only those that are named

NBD clients have no name: whoever reaches that port may use every volume.";

pub(crate) const SNAPSHOT: &str = "\
A snapshot is written VOLUME@NAME. Over NBD it is an export of its own, read only.

Examples:
  cairn snapshot create data@monday
  cairn snapshot create data@monday logs@monday    both at one instant
  cairn snapshot ls data
  cairn snapshot changes data@monday --to tuesday
  cairn clone data@monday copy
  cairn snapshot rollback data@monday    unmount first";

pub(crate) const TRASH: &str = "\
Examples:
  cairn trash ls
  cairn trash restore data --as data-again
  cairn trash empty data                 for good: its space comes back; without a name all of them";

pub(crate) const INIT: &str = "\
Examples:
  cairn init --etcd http://10.0.0.1:2379 --listen 10.0.0.1 --device /dev/nvme1n1 --device /dev/nvme2n1
  cairn init --etcd http://10.0.0.1:2379,http://10.0.0.2:2379,http://10.0.0.3:2379 \\
      --listen 10.0.0.1 --peers 192.168.7.1 --device /dev/nvme1n1 --systemd /etc/systemd/system/cairn.service
  cairn init --etcd http://[fd00::1]:2379 --listen fd00::1 --replicas 2 --device /dev/nvme1n1

Formats the devices, writes D/node.toml, and says what to run here and on the other machines (`cairn join`). It looks first:
refused are an etcd in which anything is, an address that is not this machine's, a port that is taken, a device on which
anything is (--force) or that something uses. Cut off, the same again goes on. Devices that `cairn device format` has made are
taken as they are. Two machines with data and a third with etcd alone: --replicas 2, and etcd on all three.";

pub(crate) const JOIN: &str = "\
Examples:
  cairn join --etcd http://10.0.0.1:2379 --listen 10.0.0.2 --device /dev/nvme1n1
  cairn join --etcd http://10.0.0.1:2379 --listen 10.0.0.4 --device /dev/nvme1n1 --dry-run

The machine gets the next number, and its devices their share of what is stored as soon as the node runs: a few groups at a
time, while all is in use. It says before about how much that is and how long it takes; `cairn status` says how far it is.
Refused are what `cairn init` refuses, a machine that is a node already, an etcd with no cluster or another one (--cluster), and a
network on which no node that runs is reached.";

pub(crate) const EVENTS: &str = "\
Examples:
  cairn events                                 the newest 100
  cairn events --since 2h                      all of the last two hours (s, m, h, d)
  cairn events --since 2026-05-04T12:00:00Z -n 20
  cairn events --follow -o json                each as it comes, one JSON object a line; until Ctrl-C

Each has its time in UTC, how bad it is (info, warning, error), the node that saw it first, a word for programs, and what
happened. What several nodes saw is told once. Each node remembers the newest some thousand, in its directory too; what was not
seen is not told. The clocks of the nodes should agree. docs/events.md has all kinds.";

pub(crate) const POOL_CREATE: &str = "\
Examples:
  cairn pool create safe --replicas 3
  cairn pool create safe --replicas 3 --failure-domain rack
  cairn pool create fast --replicas 2 --class nvme --placement spread

It is made over the devices that hold something already; several pools share them. It is there with all of its placement
groups, or not at all: if this was cut off, say the same again. With two copies a write is acknowledged with one of
them while the other is away (--min-in-sync 2: it waits instead). Refuses more copies than there are nodes, racks or zones.";

pub(crate) const POOL_SET: &str = "\
Examples:
  cairn pool set default --compression lz4
  cairn pool set default --placement spread

What is stored stays as it is, and readable; volumes stay where they are. Copies are moved where --failure-domain or
--class says so (`cairn status` tells). The number of copies stays: make another pool.";

pub(crate) const DEVICE_FORMAT: &str = "\
Examples:
  cairn device format /dev/nvme1n1
  truncate -s 100G disk.img && cairn device format disk.img

Everything on it is lost. Refuses a device that is mounted, open or part of something, and, without --force, one on
which anything is.";

pub(crate) const DEVICE_CHECK: &str = "\
Examples:
  cairn device check ~/.local/share/cairn/demo/node-1/device-1.img
  cairn device check /dev/nvme1n1 --repair

Ends with 0 only if all is well. Refuses a device that a node has open: stop it first.";
