//! What this node's copies of placement groups are like, and whose is to count where nobody can know.

use super::{Assembly, VolumeError};
use cluster::{ForceError, force_group};
use replication::Standing;
use types::{Epoch, GroupId, StoreId};

/// A copy of a group.
#[derive(Clone, Debug)]
pub struct GroupCopy {
    /// Whose.
    pub group: GroupId,
    /// Where.
    pub store: StoreId,
    /// How it stands.
    pub standing: Standing,
}

impl GroupCopy {
    /// Whether it keeps its group from being served, as far as it knows.
    fn is_in_the_way(&self) -> bool {
        let Standing { record, serves, stopped, poison, .. } = &self.standing;
        stopped.is_some() || poison.is_some() || record.primary == self.store && !serves
    }
}

impl Assembly {
    /// This node's copies of some groups; of all that are in the way of their group, if none are named.
    pub async fn group_copies(&self, of: Option<Vec<GroupId>>) -> Vec<GroupCopy> {
        let copies = self.on_each_core(move |head| {
            let of = of.clone();
            Box::pin(async move {
                let mut copies = Vec::new();
                for shard in head.shards() {
                    let (store, groups) = (shard.store, shard.groups.groups());
                    let all = groups.iter().map(|group| (group.id(), group.standing()));
                    let all = all.map(|(group, standing)| GroupCopy { group, store, standing });
                    let is_asked = |copy: &GroupCopy| match &of {
                        Some(of) => of.contains(&copy.group),
                        None => copy.is_in_the_way(),
                    };
                    copies.extend(all.filter(is_asked));
                }
                copies
            })
        });
        copies.await.into_iter().flatten().collect()
    }

    /// From now on the copy of `store` is what the group holds, whatever others have. `judged`: the reign that the group had when it
    /// was looked at; `known`: the newest epoch that any of its copies was heard to know.
    ///
    /// # Errors
    /// There is no such group, it has no such copy, or another reign by now; the map's.
    pub async fn force_group(
        &self,
        group: GroupId,
        store: StoreId,
        (judged, known): (Epoch, Epoch),
    ) -> Result<(), VolumeError> {
        match force_group(&*self.0.map, group, store, (judged, known)).await {
            Ok(_) => Ok(()),
            Err(ForceError::Catalog(error)) => Err(error.into()),
            Err(error) => Err(VolumeError::Force(error.to_string())),
        }
    }
}
