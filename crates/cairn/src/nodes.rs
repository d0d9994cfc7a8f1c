//! `cairn node ls`.

use crate::Failure;
use crate::client::Client;
use crate::duty::duty_of;
use crate::output::{Format, show, table};
use node::admin::types::{Node, NodeState};

pub(crate) fn list(client: &Client, format: Format) -> Result<(), Failure> {
    show(format, &client.nodes()?, |nodes| text(nodes))
}

fn text(nodes: &[Node]) -> String {
    let row = |node: &Node| {
        let state = match node.state {
            NodeState::Up => "up",
            NodeState::Down => "down",
        };
        let duty = duty_of(node.duty, node.groups, node.groups_leaving);
        let (nvme, nbd) = (node.nvme_address.clone(), node.nbd_address.clone());
        [node.name.clone(), state.to_owned(), duty, node.pid.to_string(), nvme, nbd]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    table(["NAME", "STATE", "DUTY", "PID", "NVME", "NBD"], &rows)
}
