//! Adding documents: new segments beside those that are there.

use std::time::Instant;

use fmindex::Progress;

use crate::build::{BuildError, BuildOptions, BuildReport, Folder, Limits, Work, clear_work};
use crate::index::Index;
use crate::manifest::Manifest;

/// Adds the documents of `options.corpora` to the index in `options.out`, or goes on with an addition that
/// was not finished. Sampling, stemming and whether texts are kept are those of the index.
///
/// The report speaks of the whole index, but for `skipped` and `stages`.
///
/// # Errors
/// See [`BuildError`]; also when the folder holds no index, the tokenizer is another one, or an id is
/// that of a live document. The index is then what it was.
pub fn add(options: &BuildOptions<'_>, progress: &dyn Progress) -> Result<BuildReport, BuildError> {
    let begun = Instant::now();
    Index::open(&options.out)?;
    let folder = Folder::claim_index(&options.out)?;
    // Opened again under the lock: nobody else changes it from here on.
    let index = Index::open(&options.out)?;
    index.check_tokenizer(options.tokenizer)?;
    let manifest = index.manifest();
    let options = BuildOptions {
        profile: manifest.profile.parse().unwrap_or_default(),
        stemming: manifest.stemming,
        store: manifest.store,
        ..options.clone()
    };
    let limits = Limits::of(&options)?;
    let mut work = Work::begin("add", "", &options, limits, &folder, Some(&index), progress)?;
    let mut report = if work.is_published() {
        // Killed after the manifest was written and before everything was cleared away.
        clear_work(&options.out);
        let mut report = BuildReport::of(manifest, &Default::default());
        report
            .notes
            .push("the addition was finished already".into());
        report
    } else {
        let published = work.run().and_then(|()| {
            let mut segments = manifest.segments.clone();
            segments.extend_from_slice(work.segments());
            work.publish(Manifest::new(manifest.settings(), segments))
        });
        match published {
            Ok(report) => report,
            Err(error) => {
                if !work.is_worth_keeping(&error) {
                    work.abandon();
                }
                return Err(error);
            }
        }
    };
    report.seconds = begun.elapsed().as_secs_f64();
    Ok(report)
}
