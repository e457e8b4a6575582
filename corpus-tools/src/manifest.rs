//! The manifest of an index: the one file that says what is live, written last and by rename.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use fmindex::file::FileError;
use serde::{Deserialize, Serialize};
use xxhash_rust::xxh3::{Xxh3, xxh3_64};

use crate::analysis::Stemming;
use crate::store::Stored;

/// Name of the manifest in an index folder.
pub const MANIFEST_FILE: &str = "manifest.json";
/// Name of the tokenizer in an index folder.
pub const TOKENIZER_FILE: &str = "tokenizer.json";
/// Folder of the segments in an index folder.
pub const SEGMENTS_FOLDER: &str = "segments";
/// Folder of unfinished work in an index folder.
pub const WORK_FOLDER: &str = "work";
/// Folder of the sentence vectors in an index folder, one folder an encoder. No manifest speaks of them: they can be
/// computed again from the texts.
pub const VECTORS_FOLDER: &str = "vectors";
/// Kind of the files of vectors, which end in `.bin`.
pub const VECTORS_KIND: &str = "vectors";
/// Folder of the BM25 index in a segment's folder.
pub const LEXICAL_FOLDER: &str = "lexical";

/// Version of the folder's layout and of the manifest.
pub const INDEX_VERSION: u32 = 1;

const FORMAT: &str = "verbatim index";
/// No manifest is longer: a bound on what a foreign file can make us read.
const LONGEST: u64 = 64 << 20;

/// A file of an index with its checksum.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileEntry {
    /// Path below the folder the entry belongs to, parts joined with `/`.
    pub name: String,
    /// Size in bytes.
    pub bytes: u64,
    /// XXH3-64 of the whole file, in hexadecimal.
    pub xxh3: String,
}

/// Which tokenizer an index was built with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenizerEntry {
    /// What `models::tokenizer::Tokenizer::fingerprint` gives.
    pub fingerprint: String,
    /// Highest token id + 1; the separator of paragraphs is this number.
    pub vocabulary_size: u32,
    /// The tokenizer's file.
    pub file: FileEntry,
}

/// Sizes of an index or a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Counts {
    /// Documents.
    pub documents: u64,
    /// Paragraphs, titles included.
    pub paragraphs: u64,
    /// Tokens, the separator after each paragraph included.
    pub tokens: u64,
    /// Bytes of the original texts.
    pub text_bytes: u64,
}

impl std::ops::AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.documents += other.documents;
        self.paragraphs += other.paragraphs;
        self.tokens += other.tokens;
        self.text_bytes += other.text_bytes;
    }
}

/// A live segment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SegmentEntry {
    /// Name of its folder below [`SEGMENTS_FOLDER`].
    pub name: String,
    /// What it holds, deleted documents included.
    pub counts: Counts,
    /// Numbers of its deleted documents, ascending.
    pub deleted: Vec<u32>,
    /// The file of the rows of its deleted documents, if there are any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dead_rows: Option<FileEntry>,
    /// All its files.
    pub files: Vec<FileEntry>,
}

impl SegmentEntry {
    /// Its files, that of the rows of deleted documents included.
    pub fn all_files(&self) -> impl Iterator<Item = &FileEntry> {
        self.files.iter().chain(&self.dead_rows)
    }
}

/// What all segments of an index have in common.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub tokenizer: TokenizerEntry,
    pub stemming: Stemming,
    pub profile: String,
    pub store: Stored,
}

/// The manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Always `"verbatim index"`.
    pub format: String,
    /// [`INDEX_VERSION`] of the program that wrote it.
    pub version: u32,
    /// The tokenizer.
    pub tokenizer: TokenizerEntry,
    /// How words are stemmed for BM25.
    pub stemming: Stemming,
    /// Sampling profile of the FM-index.
    pub profile: String,
    /// Whether the texts are kept.
    #[serde(default, skip_serializing_if = "Stored::is_text")]
    pub store: Stored,
    /// What the live segments hold together, deleted documents included.
    pub counts: Counts,
    /// The live segments, in order.
    pub segments: Vec<SegmentEntry>,
    /// XXH3-64, in hexadecimal, of the manifest's compact JSON with this field empty.
    pub checksum: String,
}

impl Manifest {
    /// A manifest of `segments` with these settings; counts and checksum are filled in.
    pub(crate) fn new(settings: Settings, segments: Vec<SegmentEntry>) -> Self {
        let mut counts = Counts::default();
        segments.iter().for_each(|segment| counts += segment.counts);
        let mut manifest = Self {
            format: FORMAT.into(),
            version: INDEX_VERSION,
            tokenizer: settings.tokenizer,
            stemming: settings.stemming,
            profile: settings.profile,
            store: settings.store,
            counts,
            segments,
            checksum: String::new(),
        };
        manifest.checksum = manifest.computed_checksum();
        manifest
    }

    /// What does not change while an index grows and shrinks.
    pub(crate) fn settings(&self) -> Settings {
        Settings {
            tokenizer: self.tokenizer.clone(),
            stemming: self.stemming,
            profile: self.profile.clone(),
            store: self.store,
        }
    }

    fn computed_checksum(&self) -> String {
        let bare = Self {
            checksum: String::new(),
            ..self.clone()
        };
        let json = serde_json::to_vec(&bare).expect("a manifest is plain JSON");
        format!("{:016x}", xxh3_64(&json))
    }

    /// Reads and checks the manifest of the index folder `index`.
    ///
    /// # Errors
    /// The folder has none (it is no index, or its build did not end), or the manifest is of another
    /// format or version, damaged, or names places outside of the folder.
    pub fn read(index: &Path) -> Result<Self, FileError> {
        let path = index.join(MANIFEST_FILE);
        let size = fs::metadata(&path)
            .map_err(|e| FileError::io(&path, "find the manifest of the index", e))?
            .len();
        if size > LONGEST {
            return Err(FileError::damaged(
                &path,
                LONGEST,
                "the manifest is far too long",
            ));
        }
        let bytes = fs::read(&path).map_err(|e| FileError::io(&path, "read the manifest", e))?;
        let damaged = |what: String| FileError::damaged(&path, 0, what);

        // Format and version first: a later version may have other fields.
        #[derive(Deserialize)]
        struct Head {
            format: String,
            version: u32,
        }
        let head: Head = serde_json::from_slice(&bytes)
            .map_err(|e| damaged(format!("not the manifest of an index ({e})")))?;
        if head.format != FORMAT {
            return Err(FileError::Foreign {
                path,
                expected: "manifest".into(),
                found: format!("its format is {:?}", head.format),
            });
        }
        if head.version != INDEX_VERSION {
            return Err(FileError::Version {
                path,
                found: head.version,
                supported: INDEX_VERSION,
            });
        }
        let manifest: Self = serde_json::from_slice(&bytes)
            .map_err(|e| damaged(format!("the manifest cannot be read ({e})")))?;
        if manifest.checksum != manifest.computed_checksum() {
            return Err(damaged("the manifest fails its checksum".into()));
        }
        let mut names = vec![&manifest.tokenizer.file.name];
        for segment in &manifest.segments {
            names.push(&segment.name);
            names.extend(segment.all_files().map(|file| &file.name));
        }
        if let Some(name) = names.into_iter().find(|name| !is_inside(name)) {
            return Err(damaged(format!("{name:?} is not a name within the index")));
        }
        Ok(manifest)
    }

    /// Writes the manifest of the index folder `index`: a new file, synced, then renamed.
    pub(crate) fn write(&self, index: &Path) -> Result<(), FileError> {
        let path = index.join(MANIFEST_FILE);
        let mut json = serde_json::to_vec_pretty(self).expect("a manifest is plain JSON");
        json.push(b'\n');
        // It would not be read again.
        if json.len() as u64 > LONGEST {
            let reason = "the deleted documents that it lists would be too many; merge first (`verbatim index merge`), then delete the others";
            let error = std::io::Error::other(reason);
            return Err(FileError::io(&path, "write the manifest", error));
        }
        write_renamed(&path, &json)
    }
}

/// Whether `name` stays below the folder it is joined to, on every system.
fn is_inside(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    !name.is_empty()
        && name
            .split('/')
            .all(|part| part.chars().all(plain) && !part.is_empty() && part != "." && part != "..")
}

/// Puts `bytes` at `path` by a synced temporary file and a rename.
pub(crate) fn write_renamed(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(".partial");
    let temporary = path.with_file_name(name);
    let outcome = fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(bytes).and_then(|()| file.sync_all()))
        .map_err(|e| FileError::io(&temporary, "write", e))
        .and_then(|()| {
            fs::rename(&temporary, path)
                .map_err(|e| FileError::io(path, "rename the finished file", e))
        });
    if outcome.is_err() {
        let _ = fs::remove_file(&temporary);
    }
    outcome?;
    sync_folder(path.parent().unwrap_or(Path::new(".")));
    Ok(())
}

/// Makes renames in `dir` durable where the system can: folders cannot be synced everywhere.
pub(crate) fn sync_folder(dir: &Path) {
    if let Ok(folder) = fs::File::open(dir) {
        let _ = folder.sync_all();
    }
}

/// All files below [`VECTORS_FOLDER`] of the index folder `index`, with their sizes in bytes, in the order of their
/// paths; none where there is no such folder.
pub(crate) fn vector_files(index: &Path) -> Vec<(PathBuf, u64)> {
    fn list(dir: &Path, found: &mut Vec<(PathBuf, u64)>) {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(kind) if kind.is_dir() => list(&entry.path(), found),
                Ok(kind) => found.push((entry.path(), kind.len())),
                // Gone since: somebody is writing vectors.
                Err(_) => {}
            }
        }
    }
    let mut found = Vec::new();
    list(&index.join(VECTORS_FOLDER), &mut found);
    found.sort();
    found
}

/// Size and checksum of the file `name` below `dir`.
pub(crate) fn describe_file(dir: &Path, name: &str) -> Result<FileEntry, FileError> {
    let path = join(dir, name);
    let (bytes, hash) = checksum(&path)?;
    Ok(FileEntry {
        name: name.to_owned(),
        bytes,
        xxh3: format!("{hash:016x}"),
    })
}

/// All files below `dir`, in the order of their names.
pub(crate) fn describe_folder(dir: &Path) -> Result<Vec<FileEntry>, FileError> {
    fn names(dir: &Path, prefix: &str, into: &mut Vec<String>) -> Result<(), FileError> {
        let failed = |e| FileError::io(dir, "list the folder", e);
        for entry in fs::read_dir(dir).map_err(failed)? {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name();
            let name = format!("{prefix}{}", name.to_string_lossy());
            if entry.file_type().map_err(failed)?.is_dir() {
                names(&entry.path(), &format!("{name}/"), into)?;
            } else {
                into.push(name);
            }
        }
        Ok(())
    }
    let mut found = Vec::new();
    names(dir, "", &mut found)?;
    found.sort();
    found.iter().map(|name| describe_file(dir, name)).collect()
}

fn checksum(path: &Path) -> Result<(u64, u64), FileError> {
    use std::io::Read;
    let mut file = fs::File::open(path).map_err(|e| FileError::io(path, "open the file", e))?;
    let mut hash = Xxh3::new();
    let mut buffer = vec![0; 1 << 18];
    let mut bytes = 0;
    loop {
        let read = file
            .read(&mut buffer)
            .map_err(|e| FileError::io(path, "read the file", e))?;
        if read == 0 {
            return Ok((bytes, hash.digest()));
        }
        hash.update(&buffer[..read]);
        bytes += read as u64;
    }
}

fn join(dir: &Path, name: &str) -> PathBuf {
    name.split('/')
        .fold(dir.to_owned(), |path, part| path.join(part))
}

impl FileEntry {
    /// Checks that the file below `dir` is there with its length: cheap, done on opening.
    pub(crate) fn check_size(&self, dir: &Path) -> Result<(), FileError> {
        let path = join(dir, &self.name);
        let found = fs::metadata(&path)
            .map_err(|e| FileError::io(&path, "find a file of the index", e))?
            .len();
        if found != self.bytes {
            return Err(FileError::Length {
                path,
                found,
                declared: self.bytes,
            });
        }
        Ok(())
    }

    /// Reads the file below `dir` and checks length and checksum.
    pub(crate) fn verify(&self, dir: &Path) -> Result<(), FileError> {
        self.check_size(dir)?;
        let path = join(dir, &self.name);
        let (_, hash) = checksum(&path)?;
        if format!("{hash:016x}") != self.xxh3 {
            let what = "the file fails the checksum in the manifest";
            return Err(FileError::damaged(&path, 0, what));
        }
        Ok(())
    }
}
