//! `cairn trash ls|restore|empty`.

use crate::Failure;
use crate::args::TrashCommand;
use crate::client::Client;
use crate::output::{Format, show, table};
use crate::volume::details;
use node::admin::types::{RestoreVolume, TrashedVolume};
use node::size::ByteSize;

pub(crate) fn run(client: &Client, command: TrashCommand, format: Format) -> Result<(), Failure> {
    match command {
        TrashCommand::Ls => show(format, &client.trash()?, |trash| list(trash)),
        TrashCommand::Restore { name, id, new_name } => {
            let id = find(&client.trash()?, name.as_str(), id)?.id;
            let how = RestoreVolume { name: new_name.as_ref().map(ToString::to_string) };
            show(format, &client.restore_volume(id, &how)?, details)
        }
        TrashCommand::Empty { name, id } => {
            let trash = client.trash()?;
            let emptied = match name {
                Some(name) => vec![find(&trash, name.as_str(), id)?.clone()],
                None => trash,
            };
            for volume in &emptied {
                client.empty_trash(volume.id)?;
            }
            show(format, &emptied, |emptied| format!("{} deleted for good\n", count(emptied.len())))
        }
    }
}

fn count(volumes: usize) -> String {
    if volumes == 1 { "1 volume".to_owned() } else { format!("{volumes} volumes") }
}

/// The one volume that is meant.
fn find<'a>(trash: &'a [TrashedVolume], name: &str, id: Option<u64>) -> Result<&'a TrashedVolume, Failure> {
    let named: Vec<_> = trash.iter().filter(|volume| volume.name == name).collect();
    let meant: Vec<_> = named.iter().filter(|volume| id.is_none_or(|id| volume.id == id)).collect();
    match meant[..] {
        [volume] => Ok(volume),
        [] if named.is_empty() => Err(Failure::new(format!(
            "there is no volume '{name}' in the trash: `cairn trash ls` shows what lies there"
        ))),
        _ => {
            let ids: Vec<String> = named.iter().map(|volume| volume.id.to_string()).collect();
            Err(Failure::new(format!(
                "the volumes '{name}' in the trash have the ids {}: say which one with --id",
                ids.join(", ")
            )))
        }
    }
}

fn list(trash: &[TrashedVolume]) -> String {
    let row = |volume: &TrashedVolume| {
        let size = ByteSize(volume.size_bytes).to_string();
        [volume.name.clone(), volume.id.to_string(), size, volume.deleted_at.clone(), volume.kept_until.clone()]
    };
    let rows: Vec<_> = trash.iter().map(row).collect();
    table(["NAME", "ID", "SIZE", "DELETED", "KEPT UNTIL"], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trashed(id: u64, name: &str) -> TrashedVolume {
        let time = String::new;
        TrashedVolume { id, name: name.to_owned(), size_bytes: 1 << 20, deleted_at: time(), kept_until: time() }
    }

    #[test]
    fn several_of_one_name_are_told_apart_by_their_ids() {
        let trash = [trashed(1, "a"), trashed(2, "b"), trashed(3, "a")];
        assert_eq!(find(&trash, "b", None).unwrap().id, 2);
        assert_eq!(find(&trash, "a", Some(3)).unwrap().id, 3);
        for (name, id, named) in [("a", None, "1, 3"), ("a", Some(2), "1, 3"), ("b", Some(1), "2"), ("c", None, "'c'")]
        {
            let failure = find(&trash, name, id).unwrap_err();
            assert!(failure.line.contains(named), "{name} {id:?}: {}", failure.line);
        }
    }
}
