//! Merging: segments of the live documents alone, as a fresh build of them would have written.

use std::path::PathBuf;
use std::time::Instant;

use fmindex::Progress;
use serde::Serialize;

use crate::build::{
    BuildError, BuildOptions, BuildReport, Folder, Limits, Source, Stage, Work, remove_segments,
};
use crate::index::Index;
use crate::manifest::Manifest;

/// How to merge.
#[derive(Clone, Debug)]
pub struct MergeOptions {
    /// The folder of the index.
    pub index: PathBuf,
    /// Threads; 0 for one a processor. The files do not depend on it.
    pub jobs: usize,
    /// Bytes of memory to stay within, as for a build; `None`: no limit.
    pub memory: Option<u64>,
    /// Most tokens of a segment; `None`: as many as fit.
    pub segment_tokens: Option<u64>,
}

impl MergeOptions {
    /// Merges the index in `index` into as few segments as can be.
    pub fn new(index: impl Into<PathBuf>) -> Self {
        Self {
            index: index.into(),
            jobs: 0,
            memory: None,
            segment_tokens: None,
        }
    }
}

/// What a merge did.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MergeReport {
    /// Segments before.
    pub segments_before: u64,
    /// Segments now.
    pub segments: u64,
    /// Documents now; all are live.
    pub documents: u64,
    /// Deleted documents whose bytes are gone.
    pub removed: u64,
    /// Bytes of the index before, sentence vectors apart.
    pub bytes_before: u64,
    /// Bytes of the index now, sentence vectors apart.
    pub bytes: u64,
    /// Seconds of the whole merge.
    pub seconds: f64,
    /// Seconds by stage.
    pub stages: Vec<Stage>,
    /// Old segments that the system did not let go of, because a reader has them open; the next change
    /// of the index removes them.
    pub left: Vec<String>,
    /// What became of an earlier run that was not finished, in words.
    pub notes: Vec<String>,
}

/// Merges the segments of an index and leaves deleted documents out. A segment in which nothing is deleted
/// and to which nothing can be joined stays as it is. Goes on with a merge that was not finished.
///
/// # Errors
/// There is no index, another writer is at work, the budget of memory is too small, or a file cannot be
/// read or written. The index is then what it was.
pub fn merge(options: &MergeOptions, progress: &dyn Progress) -> Result<MergeReport, BuildError> {
    let begun = Instant::now();
    Index::open(&options.index)?;
    let folder = Folder::claim_index(&options.index)?;
    let index = Index::open(&options.index)?;
    let manifest = index.manifest();
    let tokenizer = index.tokenizer()?;
    let build = BuildOptions {
        jobs: options.jobs,
        memory: options.memory,
        segment_tokens: options.segment_tokens,
        profile: manifest.profile.parse().unwrap_or_default(),
        stemming: manifest.stemming,
        store: manifest.store,
        ..BuildOptions::new([], &options.index, &tokenizer)
    };
    let limits = Limits::of(&build)?;
    let base = &manifest.checksum;
    let mut work = Work::begin(
        "merge",
        base,
        &build,
        limits,
        &folder,
        Some(&index),
        progress,
    )?;
    let mut sources: Vec<Source> = (0..manifest.segments.len() as u32)
        .map(|segment| Source::Segment(index.clone(), segment))
        .collect();
    let published = work.write_segments(&mut sources).and_then(|()| {
        let segments = work.segments().to_vec();
        work.publish(Manifest::new(manifest.settings(), segments))
    });
    let done = match published {
        Ok(done) => done,
        Err(error) => {
            if !work.is_worth_keeping(&error) {
                work.abandon();
            }
            return Err(error);
        }
    };
    let names: Vec<&str> = work
        .segments()
        .iter()
        .map(|entry| entry.name.as_str())
        .collect();
    let left = remove_segments(folder.path(), |name| !names.contains(&name));
    let before = index.stat();
    Ok(MergeReport {
        segments_before: before.segments,
        segments: done.segments,
        documents: done.documents,
        removed: before.deleted,
        bytes_before: BuildReport::of(manifest, &Default::default()).bytes,
        bytes: done.bytes,
        seconds: begun.elapsed().as_secs_f64(),
        stages: done.stages,
        left,
        notes: done.notes,
    })
}
