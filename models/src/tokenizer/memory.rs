//! Words seen before, with their ids: most words of a text are few and frequent.
//!
//! A memory is a table in which a word has two places and the newer of two words stays: bounded, without lists to
//! keep, and what is frequent comes back at once. One task of a batch works with one memory; between batches they
//! wait for the next task.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, PoisonError};

use super::bpe::Bpe;

/// Binary logarithm of the places of a memory; a place takes 32 bytes.
const BITS: u32 = 15;
/// Longer words are not remembered.
const LONGEST: usize = 15;
/// Words of more tokens are not remembered.
const IDS: usize = 3;

/// A word and its ids.
#[derive(Clone, Copy)]
struct Place {
    /// The word's bytes, zero padded, and its length in the last; 0: empty.
    word: u128,
    ids: [u32; IDS],
    count: u32,
}

/// A bounded memory of words.
pub(super) struct Memory {
    places: Box<[Place]>,
}

impl Memory {
    fn new() -> Self {
        let empty = Place {
            word: 0,
            ids: [0; IDS],
            count: 0,
        };
        Self {
            places: vec![empty; 1 << BITS].into_boxed_slice(),
        }
    }

    /// Appends the ids of `word`, as [`Bpe::encode`] does.
    #[inline]
    pub(super) fn encode(&mut self, bpe: &Bpe, word: &str, out: &mut Vec<u32>) {
        let length = word.len();
        if length > LONGEST {
            bpe.encode(word, out);
            return;
        }
        let mut bytes = [0; 16];
        bytes[..length].copy_from_slice(word.as_bytes());
        bytes[LONGEST] = length as u8;
        let key = u128::from_le_bytes(bytes);
        let mixed = (key as u64 ^ ((key >> 64) as u64).wrapping_mul(0xff51_afd7_ed55_8ccd))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let first = (mixed >> (64 - BITS)) as usize;
        let second = first ^ 1;
        for at in [first, second] {
            let place = &self.places[at];
            if place.word == key {
                out.extend_from_slice(&place.ids[..place.count as usize]);
                return;
            }
        }
        let start = out.len();
        bpe.encode(word, out);
        let found = &out[start..];
        if found.len() <= IDS {
            let mut ids = [0; IDS];
            ids[..found.len()].copy_from_slice(found);
            self.places[second] = self.places[first];
            self.places[first] = Place {
                word: key,
                ids,
                count: found.len() as u32,
            };
        }
    }
}

/// The memories of a tokenizer that no task works with just now.
#[derive(Default)]
pub(super) struct Memories(Mutex<Vec<Memory>>);

impl Memories {
    /// A memory for one task; it comes back when the task ends.
    pub(super) fn borrow(&self) -> Borrowed<'_> {
        let waiting = self.lock().pop();
        Borrowed {
            memory: Some(waiting.unwrap_or_else(Memory::new)),
            home: self,
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Memory>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A memory on loan.
pub(super) struct Borrowed<'a> {
    memory: Option<Memory>,
    home: &'a Memories,
}

impl Deref for Borrowed<'_> {
    type Target = Memory;

    fn deref(&self) -> &Memory {
        self.memory.as_ref().expect("it is on loan until dropped")
    }
}

impl DerefMut for Borrowed<'_> {
    fn deref_mut(&mut self) -> &mut Memory {
        self.memory.as_mut().expect("it is on loan until dropped")
    }
}

impl Drop for Borrowed<'_> {
    fn drop(&mut self) {
        if let Some(memory) = self.memory.take() {
            self.home.lock().push(memory);
        }
    }
}
