//! Merging segments: the live documents of several segments in a new one.

use std::path::Path;

use crate::build::{BuildError, BuildOptions, BuildReport, Progress, build_segment, stage};
use crate::file::FileError;
use crate::segment::Segment;

/// Builds a segment in `dir` from the documents of `segments`, in order, without those that are dead:
/// `dead[i]` lists the dead documents of segment `i` (any order; missing lists are empty). Documents keep
/// their order, so document `d` of segment `i` becomes the count of live documents before it.
///
/// # Errors
/// As [`build_segment`]; also when a segment is damaged or has another alphabet or separator than
/// `options`.
pub fn merge_segments(
    dir: &Path,
    segments: &[Segment],
    dead: &[Vec<u32>],
    options: &BuildOptions,
    progress: &dyn Progress,
) -> Result<BuildReport, BuildError> {
    let total: u64 = segments.iter().map(Segment::tokens).sum();
    stage(progress, "read segments", total)?;
    let mut tokens = Vec::new();
    let mut starts = Vec::new();
    let mut read = 0;
    for (at, segment) in segments.iter().enumerate() {
        if (segment.alphabet(), segment.separator()) != (options.alphabet, options.separator) {
            return Err(BuildError::Alphabet {
                alphabet: segment.alphabet(),
                separator: segment.separator(),
            });
        }
        let mut gone = vec![false; segment.documents() as usize];
        for &document in dead.get(at).map_or(&[][..], Vec::as_slice) {
            if let Some(gone) = gone.get_mut(document as usize) {
                *gone = true;
            }
        }
        // Runs of live documents are read at once, in pieces that end at documents.
        let documents = segment.documents();
        let mut next = 0;
        while next < documents {
            let span = segment.document_span(next);
            if gone[next as usize] {
                read += span.len() as u64;
                next += 1;
                continue;
            }
            let begin = span.start;
            let mut end = span.start;
            while next < documents && !gone[next as usize] && end - begin < 1 << 20 {
                let span = segment.document_span(next);
                let start = tokens.len() as u64 + u64::from(span.start - begin);
                if start >= crate::MAX_TOKENS {
                    return Err(BuildError::TooLong { tokens: total });
                }
                starts.push(start as u32);
                end = span.end;
                next += 1;
            }
            if progress.interrupted() {
                return Err(BuildError::Interrupted);
            }
            let piece = segment.extract(begin..end);
            if piece.len() as u64 != u64::from(end - begin) {
                let what = format!("tokens {begin} to {end} cannot be walked");
                return Err(FileError::damaged(segment.path(), 0, what).into());
            }
            tokens.extend_from_slice(&piece);
            read += piece.len() as u64;
            progress.advance(read);
        }
    }
    build_segment(dir, tokens, &starts, options, progress)
}
