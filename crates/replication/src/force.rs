//! An operator has said that this copy of a group counts (R24): what it has becomes what the group holds.
//!
//! Its order goes on far behind its last entry: whoever has more, known or not, has nothing of those numbers, and can be made whole
//! behind them.

use crate::group::GroupRef;
use crate::outside::Outside;
use crate::protocol::History;
use crate::shard::GroupShard;
use cluster::{Forced, encode};
use runtime::IoBuf;
use std::rc::Rc;
use std::time::Duration;
use store::EntryKind;
use types::{ChunkId, LayerId, Seq};

/// Entries that no other copy has more of: years of writes. Each epoch has so many numbers of its own, so that the copy that was said
/// to count before is behind the one that counts now, too.
const FAR_BITS: u32 = 40;
/// Between two looks whether all is durable that is to count.
const DURABLE_WAIT: Duration = Duration::from_millis(10);

/// Takes the word, to its end; a life that ends before that begins anew with it.
pub(crate) async fn heed(shard: Rc<GroupShard>, group: GroupRef, forced: Forced) {
    if let Err(why) = take(&shard, &group, forced).await {
        log::error!("group {}: the copy that is to count does not lead: {why}", group.id());
    }
}

async fn take(shard: &Rc<GroupShard>, group: &GroupRef, forced: Forced) -> Result<(), String> {
    let is_given_up = || !group.heeds(forced.epoch);
    while group.member().durable() < group.member().log().last() {
        runtime::sleep(DURABLE_WAIT).await;
        if is_given_up() || group.stopped().is_some() {
            return Err("it was given up".to_owned());
        }
    }
    group.commit_what_counts();
    let (epochs, last) = {
        let member = group.member();
        (member.log().starts().to_vec(), member.log().last())
    };
    let through = Seq((last.0 + (1 << FAR_BITS)).max(u64::from(forced.epoch.0) << FAR_BITS));
    let volumes = shard.store().volume_epochs(group.id());
    let record = IoBuf::copy_of(&encode(&group.record())).freeze();
    let skip = EntryKind::Skip { through, epochs: epochs.clone(), volumes, record };
    let outside = Outside::new(shard, group.id());
    outside.put(LayerId(0), ChunkId(0), skip, is_given_up).await?;
    outside.durable().await?;
    if is_given_up() {
        // Another is said to count by now: what is here is worth nothing, and stays so.
        return Err("another copy is said to count".to_owned());
    }
    if shard.store().committed_through(group.id()) != through {
        return Err(format!("its log does not go on behind {through}"));
    }
    group.has_skipped(through);
    group.with(|member| member.skipped(History::new(epochs, through)));
    group.counts();
    Ok(())
}
