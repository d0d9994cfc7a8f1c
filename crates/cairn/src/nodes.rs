//! `cairn node ls`.

use crate::Failure;
use crate::client::Client;
use crate::output::{Format, show, table};
use node::admin::types::{Node, NodeState};

pub(crate) fn list(client: &Client, format: Format) -> Result<(), Failure> {
    show(format, &client.nodes()?, |nodes| text(nodes))
}

fn text(nodes: &[Node]) -> String {
    let row = |node: &Node| {
        let NodeState::Up = node.state;
        let (nvme, nbd) = (node.nvme_address.clone(), node.nbd_address.clone());
        [node.name.clone(), "up".to_owned(), node.pid.to_string(), nvme, nbd]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    table(["NAME", "STATE", "PID", "NVME", "NBD"], &rows)
}
