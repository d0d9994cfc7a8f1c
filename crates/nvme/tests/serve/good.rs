//! A host that keeps the rules, while others do not.

use crate::node::{Cluster, options, pattern};
use nvme::host::{Controller, Namespace};
use std::time::Duration;

/// A good host, number 7, and what it does all the time.
pub struct Good {
    namespace: Namespace,
    _controller: Controller,
}

impl Good {
    pub fn new(cluster: &Cluster) -> Self {
        let mut options = options(7);
        options.io_queues = 2;
        let (controller, namespace) = cluster.connect(options);
        Self { namespace, _controller: controller }
    }

    /// Writes and reads, of sizes that go in the capsule and by R2T, within `at_most`.
    pub fn is_served(&self, cluster: &Cluster, at_most: Duration) {
        let namespace = self.namespace.clone();
        let done = cluster.start(async move {
            for (round, len) in [4096usize, 64 << 10, 4096, 1 << 20].into_iter().enumerate() {
                let data = pattern(len, round as u8);
                namespace.write(8 << 20, data.clone()).await.expect("written");
                let read = namespace.read(8 << 20, len as u32).await.expect("read");
                assert!(*read == *data);
            }
        });
        cluster.pass(at_most);
        assert!(done.borrow().is_some(), "another host was not served within {at_most:?}");
    }

    /// Reads on all of its queues, and so on all cores, within `at_most`.
    pub fn is_served_everywhere(&self, cluster: &Cluster, at_most: Duration) {
        const READS: usize = 32;
        let namespace = self.namespace.clone();
        let reads: Vec<_> = (0..READS)
            .map(|_| {
                let namespace = namespace.clone();
                cluster.start(async move { namespace.read(0, 4096).await.expect("read") })
            })
            .collect();
        cluster.pass(at_most);
        let done = reads.iter().filter(|read| read.borrow().is_some()).count();
        assert_eq!(done, READS, "another host was not served within {at_most:?}");
    }
}
