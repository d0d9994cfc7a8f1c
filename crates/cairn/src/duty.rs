//! `cairn node drain|maintenance|undrain|rm`, `cairn device drain|undrain|replace|rm`: what that moves, and that it has begun.

use crate::Failure;
use crate::args::{DeviceCommand, NodeCommand};
use crate::client::Client;
use crate::output::{Format, show};
use node::admin::duty_types::{DeviceBytes, Duty, DutyAction, DutyOrder, Foretold};
use node::size::ByteSize;

pub(crate) fn node(client: &Client, command: NodeCommand, format: Format) -> Result<(), Failure> {
    let (subject, action, minutes, dry_run) = match command {
        NodeCommand::Drain { node, dry_run } => (node, DutyAction::Drain, None, dry_run),
        NodeCommand::Maintenance { node, minutes, dry_run } => (node, DutyAction::Maintenance, Some(minutes), dry_run),
        NodeCommand::Undrain { node, dry_run } => (node, DutyAction::Undrain, None, dry_run),
        NodeCommand::Rm { node, lost, dry_run } => (node, removal(lost), None, dry_run),
        NodeCommand::Ls | NodeCommand::Run { .. } => unreachable!("these are no orders"),
    };
    order(client, &DutyOrder { subject, action, with: None, minutes, dry_run }, format)
}

pub(crate) fn device(client: &Client, command: DeviceCommand, format: Format) -> Result<(), Failure> {
    let (subject, action, with, dry_run) = match command {
        DeviceCommand::Drain { device, dry_run } => (device, DutyAction::Drain, None, dry_run),
        DeviceCommand::Undrain { device, dry_run } => (device, DutyAction::Undrain, None, dry_run),
        DeviceCommand::Replace { old, new, dry_run } => (old, DutyAction::Replace, Some(new), dry_run),
        DeviceCommand::Rm { device, lost, dry_run } => (device, removal(lost), None, dry_run),
        DeviceCommand::Format { .. } | DeviceCommand::Add { .. } | DeviceCommand::Ls | DeviceCommand::Check { .. } => {
            unreachable!("these are no orders")
        }
    };
    order(client, &DutyOrder { subject, action, with, minutes: None, dry_run }, format)
}

fn removal(is_lost: bool) -> DutyAction {
    if is_lost { DutyAction::Lost } else { DutyAction::Remove }
}

fn order(client: &Client, order: &DutyOrder, format: Format) -> Result<(), Failure> {
    show(format, &client.order(order)?, |told| text(order, told))
}

/// What is copied, to and from where, and how long that takes.
pub(crate) fn moved(told: &Foretold) -> String {
    let size = |bytes: u64| ByteSize(bytes).rounded();
    let mut text = format!(
        "{} placement groups get another member, about {} in about {} s ({} a second to each device, assumed)\n",
        told.groups,
        size(told.bytes),
        told.seconds,
        size(told.bytes_per_second),
    );
    let line = |what: &str, of: &DeviceBytes| format!("  {} {}: {what} {}\n", of.node, of.path, size(of.bytes));
    text.extend(told.gives.iter().map(|of| line("gives", of)));
    text.extend(told.gets.iter().map(|of| line("gets", of)));
    text +=
        &format!("  {} groups are led from elsewhere, {} tables get another home\n", told.led_elsewhere, told.homes);
    text
}

fn text(order: &DutyOrder, told: &Foretold) -> String {
    let mut text = moved(told);
    let subject = &order.subject;
    text += &match (told.begun, order.action) {
        (false, _) => "nothing was begun: say it without --dry-run\n".to_owned(),
        (true, DutyAction::Remove) => format!("{subject} is out of the cluster\n"),
        (true, DutyAction::Lost) => {
            format!("{subject} is given up: `cairn status` says how far that is, then remove it\n")
        }
        (true, _) => "it has begun: `cairn status` says how far it is\n".to_owned(),
    };
    text
}

/// What a node or a device is to do, and how far that is.
pub(crate) fn duty_of(duty: Duty, groups: usize, leaving: usize) -> String {
    match duty {
        Duty::In => "in".to_owned(),
        Duty::Maintenance => "maintenance".to_owned(),
        Duty::Draining if groups == 0 => "drained".to_owned(),
        Duty::Draining => format!("draining, {leaving} groups left"),
        Duty::Lost if groups == 0 => "lost, copied elsewhere".to_owned(),
        Duty::Lost => format!("lost, {leaving} groups left"),
    }
}
