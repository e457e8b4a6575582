//! Suffix sorting over codes, by `libsais` (Nong, Zhang, Chan 2009: induced sorting; Grebnov's implementation).

use libsais::SuffixArrayConstruction;
use libsais::suffix_array::AlphabetSize;

/// Why a text could not be sorted.
#[derive(Debug, thiserror::Error)]
#[error(
    "the suffix sorter failed on {tokens} tokens: {reason}; free memory or build smaller segments"
)]
pub struct SortError {
    /// Length of the text.
    pub tokens: usize,
    /// The sorter's reason.
    pub reason: String,
}

fn failed(tokens: usize) -> impl FnOnce(libsais::LibsaisError) -> SortError {
    move |error| SortError {
        tokens,
        reason: format!("{error:?}"),
    }
}

#[cfg(feature = "openmp")]
fn thread_count(threads: usize) -> libsais::ThreadCount {
    match u16::try_from(threads) {
        Ok(0) => libsais::ThreadCount::openmp_default(),
        Ok(threads) => libsais::ThreadCount::fixed(threads),
        Err(_) => libsais::ThreadCount::fixed(u16::MAX),
    }
}

/// Starting positions of the sorted suffixes of `text`. A suffix that is a prefix of another comes first.
/// Takes 4 bytes a symbol beside the text.
pub(crate) fn suffix_array_u16(text: &[u16], threads: usize) -> Result<Vec<i32>, SortError> {
    let construction = SuffixArrayConstruction::for_text(text).in_owned_buffer32();
    #[cfg(feature = "openmp")]
    if threads != 1 {
        let threads = thread_count(threads);
        let sorted = construction.multi_threaded(threads).run();
        return sorted
            .map(|sorted| sorted.into_vec())
            .map_err(failed(text.len()));
    }
    let _ = threads;
    let sorted = construction.single_threaded().run();
    sorted
        .map(|sorted| sorted.into_vec())
        .map_err(failed(text.len()))
}

/// As [`suffix_array_u16`], for codes `0 <= code < alphabet` of any width; `text` is scratch during the
/// sort and has its old contents afterwards.
pub(crate) fn suffix_array_i32(
    text: &mut [i32],
    alphabet: u32,
    threads: usize,
) -> Result<Vec<i32>, SortError> {
    let length = text.len();
    assert!(
        text.iter()
            .all(|&code| code >= 0 && (code as u32) < alphabet),
        "a code lies outside of its alphabet"
    );
    let construction = SuffixArrayConstruction::for_text_mut(text).in_owned_buffer32();
    let size = AlphabetSize::new(alphabet as i32);
    #[cfg(feature = "openmp")]
    if threads != 1 {
        let construction = construction.multi_threaded(thread_count(threads));
        // SAFETY: every code was just checked to lie in 0..alphabet.
        let sorted = unsafe { construction.with_alphabet_size(size) }.run();
        return sorted
            .map(|sorted| sorted.into_vec())
            .map_err(failed(length));
    }
    let _ = threads;
    let construction = construction.single_threaded();
    // SAFETY: every code was just checked to lie in 0..alphabet.
    let sorted = unsafe { construction.with_alphabet_size(size) }.run();
    sorted
        .map(|sorted| sorted.into_vec())
        .map_err(failed(length))
}
