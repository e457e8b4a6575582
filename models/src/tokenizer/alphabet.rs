//! The byte-level alphabet: the printable character that stands for each byte in a GPT-2-like vocabulary.
//!
//! Printable bytes stand for themselves; the other 68 get the characters from U+0100 on, in order
//! (Radford et al. 2019, the `bytes_to_unicode` table of the released code).

/// The character that stands for `byte`.
pub(super) fn character(byte: u8) -> char {
    let hidden = |b: u8| b <= 32 || (127..=160).contains(&b) || b == 173;
    if !hidden(byte) {
        return char::from(byte);
    }
    let before = (0..byte).filter(|&b| hidden(b)).count() as u32;
    char::from_u32(256 + before).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// Translation in both directions.
pub(super) struct Alphabet {
    to_char: [char; 256],
    to_byte: [Option<u8>; 324],
}

impl Alphabet {
    pub(super) fn new() -> Self {
        let mut alphabet = Self {
            to_char: ['\0'; 256],
            to_byte: [None; 324],
        };
        for byte in 0..=255u8 {
            let c = character(byte);
            alphabet.to_char[usize::from(byte)] = c;
            alphabet.to_byte[c as usize] = Some(byte);
        }
        alphabet
    }

    /// The bytes a vocabulary entry stands for; `None` if a character of it is not of the alphabet.
    pub(super) fn bytes_of(&self, entry: &str) -> Option<Vec<u8>> {
        entry
            .chars()
            .map(|c| self.to_byte.get(c as usize).copied().flatten())
            .collect()
    }

    /// The vocabulary entry for these bytes.
    pub(super) fn entry_of(&self, bytes: &[u8]) -> String {
        bytes
            .iter()
            .map(|&b| self.to_char[usize::from(b)])
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_its_own_printable_character() {
        let alphabet = Alphabet::new();
        let all: Vec<u8> = (0..=255).collect();
        let entry = alphabet.entry_of(&all);
        assert_eq!(
            entry
                .chars()
                .collect::<std::collections::HashSet<_>>()
                .len(),
            256
        );
        assert_eq!(alphabet.bytes_of(&entry).unwrap(), all);
        assert_eq!(character(b' '), 'Ġ');
        assert_eq!(character(b'\n'), 'Ċ');
        assert_eq!(character(173), '\u{143}');
        assert_eq!(alphabet.bytes_of("a▁"), None);
    }
}
