//! What status counts when nobody is served any more.

use super::nodes::{Cluster, made};
use std::time::Duration;

/// Leases are over by then, and nobody has taken another's place: there is none who could.
const SILENT: Duration = Duration::from_secs(5);

/// Of three nodes two are gone: whatever the third led has no copy left that could confirm anything.
pub fn a_group_that_answers_nobody_is_not_counted(seed: u64) {
    let cluster = Cluster::new(seed, 2);
    cluster.at(0, made);
    cluster.pass(Duration::from_secs(1));
    let told = |index| {
        let status = cluster.at(index, |assembly| async move { assembly.status().await });
        (status.groups_serving, status.groups_total)
    };
    let (serving, total) = told(0);
    assert!(serving == total && total > 0, "all that it leads is served: {serving} of {total}");
    for index in [1, 2] {
        cluster.crash(index);
    }
    cluster.pass(SILENT);
    let (serving, total) = told(0);
    assert!(serving == 0 && total > 0, "{serving} of {total} are told to serve, and none can");
}
