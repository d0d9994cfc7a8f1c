//! Upgrades.

use crate::help;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum UpgradeCommand {
    /// The release, protocol and features of each node, and what is in the way of finishing; the same as without a command
    Status,
    /// Have the cluster use what all of its nodes speak by now: older releases take part no more, and that cannot be taken back
    #[command(after_help = help::UPGRADE)]
    Finish {
        /// Do it; without, it is only said what will be
        #[arg(long)]
        yes: bool,
    },
}
