//! Placement groups.

use crate::help;
use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(crate) enum GroupCommand {
    /// The groups that nobody serves, and what each copy of them is like
    Ls,
    /// Say whose copy of a group counts where nobody can know: what others have and it has not is lost
    #[command(after_help = help::GROUP_FORCE)]
    Force {
        /// A node, the path of a device, or the first four digits or more of a store's id
        #[arg(long, value_name = "NODE|DEVICE|STORE")]
        copy: String,
        /// Numbers of `cairn group ls`
        #[arg(value_name = "GROUP", conflicts_with = "all")]
        groups: Vec<u32>,
        /// All that need a decision and have a copy there
        #[arg(long)]
        all: bool,
        /// Do it; without, it is only said what may be lost
        #[arg(long)]
        yes: bool,
    },
}
