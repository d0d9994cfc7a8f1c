//! Every limit of the target, with its reason.

use std::time::Duration;

/// Largest transfer of one command (MDTS, and MAXH2CDATA): a chunk, so that no command touches more than two.
pub const MAX_TRANSFER_BYTES: u32 = 1 << 20;
/// MDTS as it is told: a power of two of 4 KiB.
pub const MDTS: u8 = 8;
/// Data in the capsule of an I/O command: what is copied anyway.
pub const IO_CAPSULE_DATA_BYTES: u32 = 16 << 10;
/// Data in the capsule of an admin or fabrics command: fixed by NVMe/TCP §3.3.
pub const ADMIN_CAPSULE_DATA_BYTES: u32 = 8 << 10;
/// I/O queues of one controller.
pub const MAX_IO_QUEUES: u16 = 64;
/// Entries of an I/O queue (CAP.MQES + 1).
pub const MAX_QUEUE_ENTRIES: u16 = 1024;
/// Entries of an admin queue: a host's admin commands and its parked event requests.
pub const MAX_ADMIN_QUEUE_ENTRIES: u16 = 256;
/// Nodes that one host is told of by discovery: paths enough to outlive three of them, and few enough that hosts of a large
/// cluster do not connect to all of it.
pub const DISCOVERED_NODES_MAX: usize = 4;
/// Async event requests of one controller (AERL + 1).
pub const MAX_EVENT_REQUESTS: usize = 4;
/// Abort commands of one controller at once (ACL + 1).
pub const MAX_ABORTS: u8 = 4;
/// Namespaces of one subsystem, and ANA groups: NN = MNAN = NANAGRPID.
pub const MAX_NAMESPACES: u32 = 1024;
/// I/O should not cross this (NOIOB): the chunk.
pub const BOUNDARY_BYTES: u32 = 1 << 20;
/// Writes up to this size that do not cross a multiple of it are all or nothing (NAWUPF, NABSPF).
pub const UNTORN_BYTES: u32 = 64 << 10;
/// Discovery controllers at a time; for one more the oldest ends. Far above what hosts that stay for notices need, and a
/// small part of the controller ids.
pub const MAX_DISCOVERY_CONTROLLERS: usize = 128;
/// Compare-and-writes up to this size, wherever they begin, are one operation for every other command (NACWU; ACWU in
/// blocks of the larger format). Larger ones are too: they are told no more than is told of writes.
pub const COMPARE_AND_WRITE_BYTES: u32 = UNTORN_BYTES;
/// Preferred write granularity (NPWG): the store's block.
pub const GRANULARITY_BYTES: u32 = 4096;
/// Longest "change" state of an ANA group before a host resets the controller (ANATT).
pub const ANA_TRANSITION_SECONDS: u8 = 10;
/// A keep alive timeout below this is raised to it: no host needs to be found dead sooner.
pub const MIN_KEEP_ALIVE: Duration = Duration::from_secs(5);
/// A keep alive timeout above this is refused: a dead host would hold its queues too long.
pub const MAX_KEEP_ALIVE: Duration = Duration::from_secs(300);
/// Granularity of the keep alive timer as it is told (KAS), in 100 ms.
pub const KEEP_ALIVE_UNITS: u16 = 10;
/// How long a host waits before it retries what ended with "not ready" (CRDT1), in 100 ms.
pub const RETRY_DELAY_UNITS: u16 = 20;
/// How long enabling or a reset may take (CAP.TO, CRTO), in 500 ms.
pub const READY_TIMEOUT_UNITS: u8 = 20;
/// The same as time: what has not ended by then makes the controller fail (CSTS.CFS).
pub const RESET_TIMEOUT: Duration = Duration::from_millis(500 * READY_TIMEOUT_UNITS as u64);
/// A host that has shut its controller down and stays connected is let go after this time.
pub const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(120);
/// A discovery controller without a keep alive timeout ends when its host was silent for so long (NVMe Base 2.0
/// §3.1.2.3: two minutes).
pub const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(120);
/// Entries of the error log (ELPE + 1).
pub const ERROR_LOG_ENTRIES: usize = 64;

/// Commands being executed on one core; over it nothing more is read.
pub const MAX_CORE_COMMANDS: usize = 4096;
/// Payload of the commands of one core; over it nothing more is read, and no write is asked for its data.
pub const MAX_CORE_PAYLOAD_BYTES: usize = 64 << 20;
/// Commands of one core that wait for their volumes' limits; over it connections that such commands came on are read no
/// further. As many as may be executed: they hold little but themselves.
pub const MAX_CORE_HELD_COMMANDS: usize = MAX_CORE_COMMANDS;
/// Memory that such commands may hold on one core, beside that of those that are executed.
pub const MAX_CORE_HELD_BYTES: usize = MAX_CORE_PAYLOAD_BYTES / 4;
/// The same for one connection: a queue of Linux (128 commands) that is full of the longest in-capsule writes fits twice,
/// so that its other namespaces go on.
pub const MAX_CONNECTION_HELD_BYTES: usize = 4 << 20;
/// ICReq and Connect must have come this long after the connection.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Connections that have not sent Connect yet; more are closed at once.
pub const MAX_UNCONNECTED: usize = 256;
/// Lines that one core logs of hosts that break rules; more are counted.
pub const COMPLAINTS_PER_SECOND: u32 = 10;
/// After a C2HTermReq the host has this long to close.
pub const TERMINATION_TIMEOUT: Duration = Duration::from_secs(30);
/// A transfer in either direction must end in this time, or move [`TRANSFER_MIN_BYTES`]: a host that keeps buffers and
/// lets nothing through is cut off.
pub const TRANSFER_TIMEOUT: Duration = Duration::from_secs(30);
/// See [`TRANSFER_TIMEOUT`].
pub const TRANSFER_MIN_BYTES: u64 = 64 << 10;
/// While others wait for the memory, a connection that holds [`STALLED_BYTES`] and moves less than
/// [`TRANSFER_MIN_BYTES`] in each of so many seconds is cut off before [`TRANSFER_TIMEOUT`].
pub const STALLED_SECONDS: u8 = 3;
/// See [`STALLED_SECONDS`].
pub const STALLED_BYTES: usize = 1 << 20;
/// Payload of one connection that is executed or waits to be sent; over it nothing more is read of it, so that a host
/// that does not read leaves room for others.
pub const MAX_CONNECTION_PAYLOAD_BYTES: usize = MAX_CORE_PAYLOAD_BYTES / 4;
/// Answers of one admin queue that wait to be sent; over it no command is read there: a host that does not read what it asks for
/// gets no more of it. As long as the longest answer.
pub const MAX_ADMIN_UNSENT_BYTES: usize = 1 << 20;
/// Data of one connection that is asked for at once: one that sends slowly leaves room for others' writes.
pub const MAX_CONNECTION_GRANTED_BYTES: usize = MAX_CORE_PAYLOAD_BYTES / 4;
/// At a stop of the node, commands that were admitted have so long to be answered: half of what a stop may take less
/// what the stores need.
pub const DRAIN_TIMEOUT: Duration = Duration::from_millis(700);
/// An Abort of a command whose data is on its way is answered after this time in any case.
pub const ABORT_TIMEOUT: Duration = Duration::from_secs(2);
/// After a wait of this long the socket is asked whether it has ended before anything that came is executed.
pub const GHOST_CHECK_AFTER: Duration = volume::ALIVE_FOR;

const _: () = assert!(MAX_TRANSFER_BYTES == 4096 << MDTS);
