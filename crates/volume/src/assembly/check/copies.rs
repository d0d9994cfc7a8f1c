//! What this node's members hold, for who compares copies.

use super::Assembly;
use super::message::{Answer, Asked, LEAVES_MAX, Leaf, Question};
use replication::node::CoreGroups;
use std::rc::Rc;
use types::{GroupId, StoreId};

impl Assembly {
    pub(super) async fn answer_check(&self, Question { store, group, asked }: Question) -> Answer {
        for core in 0..self.0.cores.len() {
            let asked = asked.clone();
            let answer = self.0.groups.on_core(core, move |core| {
                Box::pin(async move {
                    match asked {
                        Asked::Leaves { after } => leaves(&core, store, group, after).await,
                        Asked::Held(leaves) => held(&core, store, group, leaves).await,
                    }
                })
            });
            if let Some(answer) = answer.await {
                return answer;
            }
        }
        Answer::NoMember
    }
}

async fn leaves(core: &Rc<CoreGroups>, store: StoreId, group: GroupId, after: Leaf) -> Option<Answer> {
    let mut leaves = core.leaves_of(store, group).await?;
    leaves.retain(|leaf| *leaf > after);
    let is_more = leaves.len() > LEAVES_MAX;
    leaves.truncate(LEAVES_MAX);
    Some(Answer::Leaves { leaves, is_more })
}

async fn held(core: &Rc<CoreGroups>, store: StoreId, group: GroupId, leaves: Vec<Leaf>) -> Option<Answer> {
    let mut all = Vec::with_capacity(leaves.len());
    for leaf in leaves {
        all.push(core.held(store, group, leaf).await?.map_err(|error| error.to_string()));
    }
    Some(Answer::Held(all))
}
