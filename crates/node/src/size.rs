//! Sizes as people write them: `4096`, `64K`, `1M`, `4G` or `4GiB`, `2T`, each a power of 1,024.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// A number of bytes that a person wrote or reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(pub u64);

/// Suffixes, largest first, with the bits they shift by.
const SUFFIXES: [(char, u32); 4] = [('T', 40), ('G', 30), ('M', 20), ('K', 10)];

/// What is wrong with a size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// No number, or an unknown suffix.
    #[error("'{0}' is not a size: write a whole number and K, M, G or T (powers of 1,024), for example 10G")]
    Unreadable(String),
    /// A suffix that means another power to everybody else.
    #[error("'{0}': GB and the like stand for powers of 1,000 elsewhere: write G or GiB, which are powers of 1,024")]
    Decimal(String),
    /// More than 64 bits.
    #[error("'{0}' is larger than any size there is")]
    TooLarge(String),
}

impl FromStr for ByteSize {
    type Err = SizeError;

    fn from_str(text: &str) -> Result<Self, SizeError> {
        let unreadable = || SizeError::Unreadable(text.to_owned());
        let (digits, unit) = text.split_at(text.find(|char: char| !char.is_ascii_digit()).unwrap_or(text.len()));
        let mut letters = unit.chars();
        let shift = match letters.next().map(|letter| letter.to_ascii_uppercase()) {
            None => 0,
            Some(first) => {
                let known = SUFFIXES.iter().find(|(letter, _)| *letter == first);
                known.map(|(_, shift)| *shift).ok_or_else(unreadable)?
            }
        };
        match letters.as_str() {
            _ if digits.is_empty() => return Err(unreadable()),
            "" | "i" | "iB" => {}
            "B" | "b" => return Err(SizeError::Decimal(text.to_owned())),
            _ => return Err(unreadable()),
        }
        let number: u64 = digits.parse().map_err(|_| SizeError::TooLarge(text.to_owned()))?;
        let bytes = number.checked_mul(1 << shift).ok_or_else(|| SizeError::TooLarge(text.to_owned()))?;
        Ok(Self(bytes))
    }
}

impl fmt::Display for ByteSize {
    /// The shortest exact way to write it: what is printed reads back as the same size.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (letter, shift) in SUFFIXES {
            if self.0 != 0 && self.0.trailing_zeros() >= shift {
                return f.pad(&format!("{}{letter}", self.0 >> shift));
            }
        }
        f.pad(&self.0.to_string())
    }
}

impl ByteSize {
    /// For people: to a tenth below 100 of a unit, rounded down.
    pub fn rounded(self) -> String {
        let fits = |(_, shift): &&(char, u32)| self.0 >> shift > 0;
        match SUFFIXES.iter().find(fits) {
            Some((letter, shift)) => {
                let tenths = ((u128::from(self.0) * 10) >> shift) as u64;
                if tenths >= 1000 || tenths.is_multiple_of(10) {
                    format!("{}{letter}", tenths / 10)
                } else {
                    format!("{}.{}{letter}", tenths / 10, tenths % 10)
                }
            }
            None => self.0.to_string(),
        }
    }
}

impl TryFrom<String> for ByteSize {
    type Error = SizeError;
    fn try_from(text: String) -> Result<Self, SizeError> {
        text.parse()
    }
}

impl From<ByteSize> for String {
    fn from(size: ByteSize) -> Self {
        size.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suffixes_are_powers_of_1024() {
        for (text, bytes) in
            [("4096", 4096), ("64K", 65_536), ("1M", 1 << 20), ("4g", 4 << 30), ("64T", 64 << 40), ("4GiB", 4 << 30)]
        {
            assert_eq!(text.parse(), Ok(ByteSize(bytes)), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "G", "1.5G", "-1G", "+1G", "1 G", "GiB", "1GG", "1iB", "0x10", "ten", "1\u{663}"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError::Unreadable(text.into())), "{text:?}");
        }
        for text in ["1GB", "500mb"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError::Decimal(text.into())), "{text:?}");
        }
        for text in ["99999999999999999999", "16777216T"] {
            assert_eq!(text.parse::<ByteSize>(), Err(SizeError::TooLarge(text.into())), "{text:?}");
        }
    }

    #[test]
    fn rounded_sizes_are_short() {
        for (bytes, text) in [(0, "0"), (1023, "1023"), (1536, "1.5K"), (4 << 30, "4G"), (3_650_722_201, "3.3G")] {
            assert_eq!(ByteSize(bytes).rounded(), text);
        }
        assert_eq!(ByteSize((250 << 40) + 1).rounded(), "250T");
        assert_eq!(ByteSize(u64::MAX).rounded(), "16777215T");
    }

    #[test]
    fn what_is_printed_reads_back() {
        for bytes in [0, 1, 4096, 4097, 1 << 20, (1 << 30) + 4096, 3 << 40, u64::MAX] {
            assert_eq!(ByteSize(bytes).to_string().parse(), Ok(ByteSize(bytes)));
        }
        assert_eq!(ByteSize(1536 << 20).to_string(), "1536M");
    }
}
