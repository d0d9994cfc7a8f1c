//! Tables for people, JSON for programs.

use crate::Failure;
use serde::Serialize;
use std::io::{ErrorKind, IsTerminal, Write};

/// How to print.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

/// Prints `text`. A reader that has gone away wants no more of it: not an error.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_on(text).map(drop)
}

/// Prints `text`. Returns whether somebody still reads.
pub(crate) fn print_on(text: &str) -> Result<bool, Failure> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Failure::new(format!("cannot write to standard output ({error}): make room where it goes"))),
    }
}

/// Prints `value` as JSON, or what `text` makes of it.
pub(crate) fn show<T: Serialize + ?Sized>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<(), Failure> {
    print(&shown(format, value, text)?)
}

/// `value` as JSON, or what `text` makes of it.
pub(crate) fn shown<T: Serialize + ?Sized>(
    format: Format,
    value: &T,
    text: impl FnOnce(&T) -> String,
) -> Result<String, Failure> {
    match format {
        Format::Text => Ok(text(value)),
        Format::Json => serde_json::to_string_pretty(value).map(|json| json + "\n").map_err(Failure::of),
    }
}

/// Lines of equal columns, two spaces apart, the first line being the headings.
pub(crate) fn table<const COLUMNS: usize>(headings: [&str; COLUMNS], rows: &[[String; COLUMNS]]) -> String {
    let mut widths = headings.map(str::len);
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let line = |cells: [&str; COLUMNS]| {
        let padded: Vec<String> = cells.iter().zip(widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        format!("{}\n", padded.join("  ").trim_end())
    };
    let mut text = line(headings);
    for row in rows {
        text += &line(row.each_ref().map(String::as_str));
    }
    text
}

/// One line that is written over, or a line each where nobody watches.
pub(crate) struct Progress {
    is_terminal: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { is_terminal: std::io::stderr().is_terminal() }
    }

    pub(crate) fn show(&mut self, doing: &str) {
        let mut stderr = std::io::stderr().lock();
        // Nobody reading the progress is no reason to stop.
        let _ = if self.is_terminal { write!(stderr, "\r\x1b[K{doing}") } else { writeln!(stderr, "{doing}") };
        let _ = stderr.flush();
    }

    pub(crate) fn end(&mut self) {
        if self.is_terminal {
            eprint!("\r\x1b[K");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let rows = [["a".to_owned(), "1G".to_owned()], ["database".to_owned(), "2T".to_owned()]];
        assert_eq!(table(["NAME", "SIZE"], &rows), "NAME      SIZE\na         1G\ndatabase  2T\n");
    }
}
