//! `cairn demo` and `cairn node run`: serve until told to stop.
