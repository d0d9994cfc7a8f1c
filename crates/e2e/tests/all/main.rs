//! Tests that share a process: one binary of them is built and linked, in place of one each.

mod encryption;
mod full;
mod ghost;
mod kill;
mod reader;
mod stop;
