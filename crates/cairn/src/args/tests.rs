//! What may be said, and the one line for what may not.

use super::*;
use node::size::ByteSize;

fn read(line: &str) -> Result<Arguments, UsageError> {
    match parse(std::iter::once("cairn").chain(line.split_whitespace()).map(OsString::from))? {
        Request::Run(arguments) => Ok(*arguments),
        Request::Show(text) => panic!("{line} shows {text}"),
    }
}

#[test]
fn the_command_line_is_sound() {
    Arguments::command().debug_assert();
}

#[test]
fn the_demo_takes_what_scripts_rely_on() {
    let line = "demo --dir d --device-size 4G --volume a:1G --volume b:2G:4096 --nvme-port 0 --nbd-port 1 \
                --admin-port 2 --listen 0.0.0.0 --cores 2 --record r";
    let Command::Demo(demo) = read(line).unwrap().command else { panic!("not a demo") };
    assert_eq!(demo.device_size, Some(ByteSize(4 << 30)));
    assert_eq!(demo.volumes, ["a:1G:512".parse().unwrap(), "b:2G:4096".parse().unwrap()]);
    assert_eq!((demo.nvme_port, demo.nbd_port, demo.admin_port, demo.cores), (Some(0), Some(1), Some(2), Some(2)));
    assert!(read("volume ls -o json").is_ok() && read("-o json volume ls").is_ok());
}

#[test]
fn a_machine_says_where_it_is_reached() {
    let line = "join --etcd http://[fd00::1]:2379,http://[fd00::2]:2379 --listen fd00::4 --peers fd01::4 --device a --device b \
                --cluster 0123456789abcdef0123456789abcdef";
    let Command::Join(join) = read(line).unwrap().command else { panic!("not a join") };
    assert_eq!((join.machine.etcd.len(), join.machine.devices.len()), (2, 2));
    assert!(join.machine.listen.is_ipv6() && join.cluster.is_some());
    for (line, named) in [
        ("init --listen ::1 --device a", "--etcd"),
        ("init --etcd http://e:1 --listen 10.0.0.1:80 --device a", "without a port"),
        ("init --etcd http://e:1 --listen ::1", "--device"),
        ("init --etcd http://e:1 --listen ::1 --device a --replicas 1", "2..=5"),
        ("init --etcd http://e:1 --listen ::1 --device a --peers-port 0", "0"),
        ("join --etcd http://e:1 --listen ::1 --device a --cluster 12", "32 digits"),
        ("join --etcd http://e:1 --listen ::1 --device a --spare --dry-run", "--spare"),
    ] {
        let UsageError(text) = read(line).unwrap_err();
        assert!(text.contains(named) && !text.contains('\n'), "{line}: {text}");
    }
}

#[test]
fn secrets_are_named_by_their_files() {
    for line in [
        "volume create v --size 1G --encrypt --key-file k",
        "volume create v --size 1G --encrypt --passphrase-file -",
        "volume unlock v --passphrase-file p",
        "volume lock v",
        "volume rekey v --key-file a --new-key-file b",
        "volume rekey v --key-file a --new-passphrase-file - --add",
        "volume rekey v --passphrase-file a --remove",
        "demo --key-file a --key-file b --compression zstd",
    ] {
        assert!(read(line).is_ok(), "{line}: {:?}", read(line));
    }
}

#[test]
fn the_last_flag_wins_and_volumes_gather() {
    let line = "demo --nvme-port 1 --nvme-port 2 --volume a:1G --volume b:1G";
    let Command::Demo(demo) = read(line).unwrap().command else { panic!("not a demo") };
    assert_eq!((demo.nvme_port, demo.volumes.len()), (Some(2), 2));
}

#[test]
fn what_is_wrong_is_one_line_that_names_it() {
    for (line, named) in [
        ("", "a command is missing"),
        ("volume", "a command is missing"),
        ("volume create v", "--size"),
        ("volume create V --size 1G", "'V' is not a volume name"),
        ("volume create v --size 1M5", "'1M5' is not a size"),
        ("volume create v --size 4K", "1M to 64T"),
        ("volume create v --size 1G --block-size 1024", "512 or 4096"),
        ("volume info", "<NAME>"),
        ("volume lss", "lss"),
        ("--admin ftp://x volume ls", "http://HOST:PORT"),
        ("--admin localhost volume ls", "http://HOST:PORT"),
        ("demo --cores 0", "0"),
        ("demo --nodes 0", "0"),
        ("demo --nodes 3 --replicas 6", "6"),
        ("demo --device-size 100M", "256M to 512T"),
        ("demo --volume a", "NAME:SIZE"),
        ("demo --volume a:1G --volume a:1G", "twice"),
        ("demo --nvme-port 65536", "65536"),
        ("demo --listen localhost", "IP addresses"),
        ("volume create v", "write: cairn volume create --size <SIZE> <NAME>"),
        ("volumes ls", "there is no command 'volumes': `cairn` has demo, init, join, node, volume,"),
        ("volume lss", "there is no command 'lss': `cairn volume` has create, ls, info,"),
        ("volume", "`cairn volume` has create, ls"),
        ("help volumes", "volume"),
        ("volume create v --size -5G", "'-5G' is not a size"),
        ("volume create v --size 5GB", "write G or GiB"),
        ("volume create v --size 1G --pool P", "'P' is not a"),
        ("volume create v --size 1G --placement near", "gathered"),
        ("volume create v --size 1G --iops -1", "'-1' is not a number of IOPS"),
        ("volume set v --iops 0", "from 1 to 100000000"),
        ("volume set v --bandwidth 1K/s", "64K/s to 1T/s"),
        ("volume set v --burst 10", "'10' is not a time"),
        ("volume set v", "nothing is to be set"),
        ("volume rename a", "<NEW>"),
        ("volume rename a B", "'B' is not a volume name"),
        ("status -o yaml", "yaml"),
        ("trash", "a command is missing"),
        ("trash restore", "<NAME>"),
        ("trash restore a --as B", "'B' is not a volume name"),
        ("trash empty --id 3", "<NAME>"),
        ("volume create v --size 1G --encrypt", "--key-file"),
        ("volume create v --size 1G --key-file k", "--encrypt"),
        ("volume create v --size 1G --encrypt --key-file k --passphrase-file p", "--passphrase-file"),
        ("volume unlock v", "--key-file"),
        ("volume unlock v --passphrase open", "--passphrase-file"),
        ("volume rekey v --key-file a", "--new-key-file"),
        ("volume rekey v --new-key-file b", "--key-file"),
        ("volume rekey v --key-file a --add", "--new-key-file"),
        ("volume rekey v --key-file a --remove --new-key-file b", "--remove"),
        ("volume rekey v --key-file a --remove --add", "--add"),
        ("pool set default --compression lzma", "lz4, zstd or off"),
        ("pool set default", "--compression"),
        ("torture", "--volume"),
        ("torture --volume v --judge f", "cannot be used with"),
        ("torture --volume v --kill a --kill b --heal c", "2 --kill and 1 --heal"),
        ("torture --volume v --heal c", "--kill"),
        ("torture --volume v --until-interrupted --seconds 3", "--seconds"),
        ("torture --target nvme-tcp://h:1/nqn", "nvme-tcp://HOST:PORT"),
        ("torture --volume v --seconds 0", "0"),
        ("torture --judge f --keep g", "--keep"),
    ] {
        let UsageError(text) = read(line).unwrap_err();
        assert!(text.contains(named) && !text.contains('\n'), "{line}: {text}");
    }
}

#[test]
fn a_long_word_is_not_echoed_whole() {
    let long = "x".repeat(5000);
    for line in
        [format!("volume info {}", long.to_uppercase()), format!("volume {long}"), format!("volume info --{long}")]
    {
        let UsageError(text) = read(&line).unwrap_err();
        assert!(text.len() < 500, "{} bytes: {text}", text.len());
    }
}

fn shown(line: &str) -> String {
    match parse(std::iter::once("cairn").chain(line.split_whitespace()).map(OsString::from)) {
        Ok(Request::Show(text)) => text,
        other => panic!("{line}: {other:?}"),
    }
}

#[test]
fn help_names_every_command_and_is_not_coloured() {
    let overview = shown("--help");
    for command in Arguments::command().get_subcommands() {
        let line = format!("  {}", command.get_name());
        let told = overview.lines().find(|told| told.starts_with(&line)).unwrap_or_default();
        let about = command.get_about().map(ToString::to_string).unwrap_or_default();
        assert!(told.ends_with(&about) && !about.is_empty(), "{line}: {told:?}, {about:?}");
        let names: Vec<&str> = command.get_subcommands().map(clap::Command::get_name).collect();
        let listed = about.split_once(": ").map_or("", |(_, listed)| listed);
        if !names.is_empty() && command.get_name() != "node" {
            assert_eq!(listed, names.join(", "), "{line}");
        }
    }
    assert_eq!(shown("help"), overview);
    for line in ["help volume", "help volume create", "volume create --help", "help demo", "help host allow"] {
        let text = shown(line);
        assert!(text.contains("Usage:") && !text.contains('\u{1b}'), "{line}: {text}");
        assert!(text.lines().all(|line| line.chars().count() <= 160), "{line}: {text}");
    }
    assert!(shown("help volume create").contains("Examples:") && shown("help volume set").contains("64K/s"));
}

#[test]
fn the_admin_address_loses_its_slash() {
    assert_eq!(read("--admin http://h:1/ status").unwrap().admin.unwrap(), "http://h:1");
    assert_eq!(read("status --admin http://[::1]:1").unwrap().admin.unwrap(), "http://[::1]:1");
}

#[test]
fn the_flag_wins_over_the_environment() {
    let flag = || Some("http://flag:1".to_owned());
    assert_eq!(admin_of(flag(), Some("http://env:1".into())).unwrap(), "http://flag:1");
    assert_eq!(admin_of(flag(), Some("nonsense".into())).unwrap(), "http://flag:1");
    assert_eq!(admin_of(None, Some("http://env:1/".into())).unwrap(), "http://env:1");
    assert_eq!(admin_of(None, Some("".into())).unwrap(), "http://127.0.0.1:8420");
    assert_eq!(admin_of(None, None).unwrap(), "http://127.0.0.1:8420");
    let UsageError(text) = admin_of(None, Some("nonsense".into())).unwrap_err();
    assert!(text.contains("CAIRN_ADMIN is 'nonsense'"), "{text}");
}
