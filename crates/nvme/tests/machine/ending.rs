//! Commands that come while their controller ends.

use crate::harness::{Digests, Host, world};
use nvme::wire::{Property, property};
use nvme::wire::{Sqe, Status, fabrics_type, nvm};

/// Ended by another core, or reset: what is not executed here is not refused for good, and a host with another path takes that.
pub fn tried_elsewhere() {
    for is_reset in [false, true] {
        let world = world();
        let (mut host, id) = Host::admin(&world, Digests(false, false), usize::MAX);
        let mut io = Host::io(&world, id, 1, Digests(false, false), usize::MAX);
        if is_reset {
            let set = Property { size_bytes: Some(4), offset: property::CONFIGURATION, value: 0 };
            assert!(host.command(set.encode(fabrics_type::PROPERTY_SET), None).status.is_success());
        } else {
            world.registry.controllers().iter().for_each(|controller| controller.end());
        }
        let status = io.command(Sqe::new(nvm::FLUSH, 1), None).status;
        assert_eq!((status.code(), status.is_final()), (Status::INTERNAL_PATH_ERROR, false));
    }
}
