//! A node's file without what etcd asks for.

use crate::config::NodeConfig;

/// Stands where something was.
pub(super) const TAKEN_OUT: &str = "(taken out)";

/// The file as it is understood, with nothing in it that lets anybody in. Paths of files with secrets stay: what is in them was
/// never read.
pub(super) fn text(mut config: NodeConfig) -> Result<String, String> {
    for url in &mut config.map.etcd {
        *url = without_user(url);
    }
    if let Some(user) = &mut config.map.user {
        *user = TAKEN_OUT.to_owned();
    }
    toml::to_string(&config).map_err(|error| error.to_string())
}

/// A URL without what stands before its host, and behind its path.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    let rest = rest.rsplit_once('@').map_or(rest, |(_, host)| host);
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if scheme.is_empty() { host.to_owned() } else { format!("{scheme}://{host}") }
}

/// What stands before the host of a URL: a user, and perhaps a password.
pub(super) fn user_of(url: &str) -> Vec<String> {
    let rest = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user = rest.rsplit_once('@').map_or("", |(user, _)| user);
    user.split(':').map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_keeps_its_host_alone() {
        for url in ["https://u:p@h:1", "https://u:p@x@h:1/path?token=t", "https://h:1#x", "https://h:1"] {
            assert_eq!(without_user(url), "https://h:1", "{url}");
        }
        assert_eq!(without_user("http://[::1]:2379"), "http://[::1]:2379");
        assert_eq!(user_of("https://u:p@h:1"), ["u", "p"]);
    }
}
