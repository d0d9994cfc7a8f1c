//! NBD: wire, server, client
