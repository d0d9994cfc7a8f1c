//! Hosts that want more of a core than their share.

use crate::good::Good;
use crate::node::{Cluster, cluster, options};
use crate::raw::{Raw, bare_controller, bytes};
use nvme::host::Controller;
use nvme::limits;
use nvme::wire::{
    Configuration, Connect, ConnectData, DISCOVERY_NQN, DYNAMIC_CONTROLLER, Property, Sgl, Sqe, admin, fabrics_type,
    nvm, property,
};
use std::time::Duration;

const MIB: u32 = 1 << 20;

/// A host with 200 writes of 1 MiB on each of these queues, which sends nothing of them.
pub fn is_asked_for_data(cluster: &Cluster, queues: impl IntoIterator<Item = u16>) -> (Controller, Vec<Raw>) {
    let controller = bare_controller(cluster);
    let (address, id, nsid) = (cluster.address(), controller.id(), cluster.served.nsids[1]);
    let asked = |queue| {
        cluster.run(async move {
            let raw = Raw::queue_of(address, id, (queue, 255)).await;
            for command in 0..200 {
                raw.io(nvm::WRITE, nsid, command, MIB >> 12);
            }
            raw.send().await;
            raw
        })
    };
    let queues = queues.into_iter().map(asked).collect();
    (controller, queues)
}

/// One of them takes its share of the memory for data, and another host's writes are asked for meanwhile.
pub fn leaves_room_for_data(seed: u64) {
    let cluster = cluster(seed);
    let good = Good::new(&cluster);
    let greedy = is_asked_for_data(&cluster, [1]);
    cluster.pass(Duration::from_secs(1));
    good.is_served(&cluster, Duration::from_secs(1));
    drop(greedy);
}

/// A stranger's discovery controller is asked for 200 MiB of its log, which nobody reads.
pub fn takes_no_answers(seed: u64) {
    let cluster = cluster(seed);
    let good = Good::new(&cluster);
    let address = cluster.address();
    let raw = cluster.run(async move {
        let raw = Raw::opened(address).await;
        let (host, attributes) = (options(9).host, Connect::NO_FLOW_CONTROL);
        let connect = Connect { record_format: 0, queue: 0, sq_size: 31, attributes, keep_alive_ms: 0 };
        let (subsystem, host_nqn) = (Some(DISCOVERY_NQN.into()), Some(host.nqn));
        let data = ConnectData { host_id: host.id, controller: DYNAMIC_CONTROLLER, subsystem, host: host_nqn };
        let enable = Property {
            size_bytes: Some(4),
            offset: property::CONFIGURATION,
            value: u64::from(Configuration::ENABLE.0),
        };
        for (command, data) in
            [(connect.encode(), Some(bytes(&data.encode()))), (enable.encode(fabrics_type::PROPERTY_SET), None)]
        {
            raw.writer.borrow_mut().command(&command, data);
            raw.send().await;
            assert_eq!(raw.read(24).await[22..24], [0, 0], "connected and enabled");
        }
        let dwords = limits::MAX_TRANSFER_BYTES / 4 - 1;
        for command in 0..200 {
            let mut sqe = Sqe::new(admin::GET_LOG_PAGE, 0);
            sqe.command = command % 30;
            (sqe.cdw[0], sqe.cdw[1]) = (0x70 | dwords << 16, dwords >> 16);
            sqe.sgl = Sgl::transport(limits::MAX_TRANSFER_BYTES);
            raw.writer.borrow_mut().command(&sqe, None);
        }
        raw.send().await;
        raw
    });
    cluster.pass(Duration::from_secs(1));
    good.is_served_everywhere(&cluster, Duration::from_secs(1));
    drop(raw);
}
