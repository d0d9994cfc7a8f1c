//! Numbers of faults, as the command line has them: `3,7-9`.

use std::collections::BTreeSet;

/// Reads them.
///
/// # Errors
/// What is no number.
pub fn parse_numbers(text: &str) -> Result<BTreeSet<u32>, String> {
    let number = |text: &str| text.parse::<u32>().map_err(|_| format!("{text} is not the number of a fault"));
    let mut numbers = BTreeSet::new();
    for part in text.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        numbers.extend(number(from)?..=number(to)?);
    }
    Ok(numbers)
}

/// See [`parse_numbers`].
pub fn format_numbers(numbers: &BTreeSet<u32>) -> String {
    let numbers: Vec<u32> = numbers.iter().copied().collect();
    let ranges = numbers.chunk_by(|a, b| a + 1 == *b).map(|run| match run {
        [one] => one.to_string(),
        [first, .., last] => format!("{first}-{last}"),
        [] => String::new(),
    });
    ranges.collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_faults_are_read_as_they_are_written() {
        let numbers = BTreeSet::from([1, 3, 4, 5, 9]);
        assert_eq!(format_numbers(&numbers), "1,3-5,9");
        assert_eq!(parse_numbers("1,3-5,9"), Ok(numbers));
        assert!(parse_numbers("1,x").is_err() && parse_numbers("").is_err());
    }
}
