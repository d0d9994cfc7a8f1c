//! `cairn node ls`.

use crate::Failure;
use crate::client::Client;
use crate::duty::duty_of;
use crate::output::{Format, show, table};
use node::admin::types::Node;

pub(crate) fn list(client: &Client, format: Format) -> Result<(), Failure> {
    show(format, &client.nodes()?, |nodes| text(nodes))
}

fn text(nodes: &[Node]) -> String {
    let row = |node: &Node| {
        let state = node.state.name();
        let duty = duty_of(node.duty, node.groups, node.groups_leaving);
        let (nvme, nbd) = (node.nvme_address.clone(), node.nbd_address.clone());
        let pid = if node.pid == 0 { String::new() } else { node.pid.to_string() };
        [node.name.clone(), state.to_owned(), duty, pid, nvme, nbd]
    };
    let rows: Vec<_> = nodes.iter().map(row).collect();
    table(["NAME", "STATE", "DUTY", "PID", "NVME", "NBD"], &rows)
}
