//! Orders about pools, and where volumes are to lie: what the admin API asks of the control core, and how that answers.

use crate::control::Answer;
use crate::local_node::tell;
use cluster::{NewPool, PoolChange, WantedPlace};
use types::NodeId;
use volume::{Assembly, PoolInfo};

/// What the control core is asked.
#[derive(Debug)]
pub enum PoolRequest {
    /// The pools with their rules, by name.
    List(Answer<Vec<PoolInfo>>),
    /// Make a pool.
    Create(NewPool, Answer<PoolInfo>),
    /// Change where copies and volumes of a pool may lie.
    Change(String, PoolChange, Answer<PoolInfo>),
    /// The node that a new volume is best served by.
    HomeFor(WantedPlace, Answer<NodeId>),
}

/// Carries an order out. Nobody may be waiting for the answer any more: it was carried out all the same.
pub(crate) async fn answer(assembly: Assembly, request: PoolRequest) {
    match request {
        PoolRequest::List(reply) => tell(reply, assembly.pool_infos().await),
        PoolRequest::Create(new, reply) => tell(reply, assembly.create_pool(&new).await),
        PoolRequest::Change(name, change, reply) => tell(reply, assembly.change_pool(&name, &change).await),
        PoolRequest::HomeFor(wanted, reply) => tell(reply, assembly.home_for(&wanted).await),
    }
}
