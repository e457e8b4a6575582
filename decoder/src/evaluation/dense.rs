//! Dense retrieval: the cosine of sentence embeddings (Reimers and Gurevych 2019) of question and paragraphs, title in
//! front; a document counts with its best paragraph. Every pair is compared, nothing is approximated.
//!
//! Embeddings are kept in a folder named after the index and the encoder, so another one of either never
//! reads them: parts of a fixed number of documents, written one after another, so that an interrupted
//! run goes on with the next part.

use std::io::Read;
use std::path::{Path, PathBuf};

use corpus_tools::Index;
use fmindex::DocumentId;
use fmindex::file::{File, FileError, Writer};
use models::encoder::SentenceEncoder;

use super::EvaluationError;
use crate::scorer::WindowText;

/// Documents of one part.
const PART: usize = 2048;
/// Texts that are embedded between two looks at the interrupt.
const BATCH: usize = 32;
const KIND: &str = "embeddings";

/// A sentence encoder with the fingerprint that its embeddings are kept under.
pub struct Encoder {
    encoder: SentenceEncoder,
    fingerprint: u64,
}

impl Encoder {
    /// Opens the encoder in `folder`.
    ///
    /// # Errors
    /// It is no encoder, or damaged.
    pub fn open(folder: &Path) -> Result<Self, EvaluationError> {
        let weights = folder.join("model.safetensors");
        let io = |source| EvaluationError::io(&weights, "read the encoder", source);
        let mut file = std::fs::File::open(&weights).map_err(io)?;
        let mut hash = xxhash_rust::xxh3::Xxh3::new();
        let mut buffer = vec![0; 1 << 16];
        loop {
            match file.read(&mut buffer).map_err(io)? {
                0 => break,
                read => hash.update(&buffer[..read]),
            }
        }
        Ok(Self {
            encoder: SentenceEncoder::open(folder)?,
            fingerprint: hash.digest(),
        })
    }
}

/// The embeddings of all live documents of an index.
pub struct Dense<'a> {
    encoder: &'a Encoder,
    /// The document of each row.
    documents: Vec<DocumentId>,
    /// Rows of unit vectors, one after another.
    rows: Vec<f32>,
    dimension: usize,
}

impl<'a> Dense<'a> {
    /// Reads the embeddings kept under `cache`, and computes and keeps what is missing. `progress` is told how
    /// many documents are done, and of how many.
    ///
    /// # Errors
    /// A document cannot be read or embedded, a file cannot be written, or `interrupted` said so.
    pub fn open(
        index: &Index,
        encoder: &'a Encoder,
        cache: &Path,
        progress: &dyn Fn(u64, u64),
        interrupted: &dyn Fn() -> bool,
    ) -> Result<Self, EvaluationError> {
        let folder = cache.join(key(index, encoder));
        std::fs::create_dir_all(&folder)
            .map_err(|source| EvaluationError::io(&folder, "create the folder", source))?;
        let documents: Vec<DocumentId> = index.documents().collect();
        let mut dense = Self {
            encoder,
            documents: Vec::new(),
            rows: Vec::new(),
            dimension: encoder.encoder.dimension(),
        };
        for (number, part) in documents.chunks(PART).enumerate() {
            let done = number * PART;
            progress(done as u64, documents.len() as u64);
            let path = folder.join(format!("part-{number:06}.bin"));
            // A part that is missing or damaged is computed again.
            let (counts, rows) = match read_part(&path, part.len(), dense.dimension) {
                Some(read) => read,
                None => {
                    let step = |at: usize| {
                        progress((done + at) as u64, documents.len() as u64);
                        interrupted()
                    };
                    let computed = embed_part(index, encoder, part, &step)?;
                    write_part(&path, &computed)?;
                    computed
                }
            };
            for (&document, &count) in part.iter().zip(&counts) {
                dense
                    .documents
                    .extend(std::iter::repeat_n(document, count as usize));
            }
            dense.rows.extend(rows);
        }
        Ok(dense)
    }

    /// The `k` best documents for `question` with the cosine of their best paragraph, equal ones in document order.
    ///
    /// # Errors
    /// The question cannot be embedded.
    pub fn search(
        &self,
        question: &str,
        k: usize,
    ) -> Result<Vec<(DocumentId, f64)>, EvaluationError> {
        let embedded = self.encoder.encoder.embed(&[question])?;
        let Some(question) = embedded.first() else {
            return Ok(Vec::new());
        };
        let mut best: Vec<(DocumentId, f64)> = Vec::new();
        for (row, &document) in self.rows.chunks_exact(self.dimension).zip(&self.documents) {
            let score = f64::from(dot(row, question));
            match best.last_mut() {
                Some(last) if last.0 == document => last.1 = last.1.max(score),
                _ => best.push((document, score)),
            }
        }
        let by_score =
            |a: &(DocumentId, f64), b: &(DocumentId, f64)| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0));
        if best.len() > k && k > 0 {
            best.select_nth_unstable_by(k - 1, by_score);
        }
        best.truncate(k);
        best.sort_unstable_by(by_score);
        Ok(best)
    }
}

/// Eight sums side by side, so that the compiler may use wide instructions; their order is fixed.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0f32; 8];
    let (eights, rest) = a.as_chunks::<8>();
    let (others, other_rest) = b.as_chunks::<8>();
    for (x, y) in eights.iter().zip(others) {
        for lane in 0..8 {
            sums[lane] += x[lane] * y[lane];
        }
    }
    let rest: f32 = rest.iter().zip(other_rest).map(|(x, y)| x * y).sum();
    sums.iter().sum::<f32>() + rest
}

/// The name that embeddings of this index by this encoder are kept under.
fn key(index: &Index, encoder: &Encoder) -> PathBuf {
    let mut hash = xxhash_rust::xxh3::Xxh3::with_seed(encoder.fingerprint);
    for entry in &index.manifest().segments {
        for document in &entry.deleted {
            hash.update(&document.to_le_bytes());
        }
        for file in &entry.files {
            hash.update(file.name.as_bytes());
            hash.update(file.xxh3.as_bytes());
        }
    }
    format!("{:016x}", hash.digest()).into()
}

/// Rows of each document of a part, and the rows.
type Part = (Vec<u32>, Vec<f32>);

fn embed_part(
    index: &Index,
    encoder: &Encoder,
    part: &[DocumentId],
    step: &dyn Fn(usize) -> bool,
) -> Result<Part, EvaluationError> {
    let mut counts = Vec::with_capacity(part.len());
    let mut texts = Vec::new();
    for &document in part {
        let stored = index.document(document)?;
        let before = texts.len();
        for paragraph in stored.paragraphs.iter().filter(|one| !one.is_title()) {
            let text = WindowText {
                title: stored.title.to_owned(),
                text: stored.paragraph_text(paragraph).to_owned(),
            };
            texts.push(text.joined());
        }
        counts.push((texts.len() - before) as u32);
    }
    // Texts of one length together: a batch costs what its longest costs.
    let mut order: Vec<usize> = (0..texts.len()).collect();
    order.sort_by_key(|&at| texts[at].len());
    let dimension = encoder.encoder.dimension();
    let mut rows = vec![0f32; texts.len() * dimension];
    for (number, batch) in order.chunks(BATCH).enumerate() {
        if step(part.len() * number * BATCH / texts.len().max(1)) {
            return Err(EvaluationError::Interrupted);
        }
        let inputs: Vec<&str> = batch.iter().map(|&at| texts[at].as_str()).collect();
        for (&at, row) in batch.iter().zip(encoder.encoder.embed(&inputs)?) {
            rows[at * dimension..(at + 1) * dimension].copy_from_slice(&row);
        }
    }
    Ok((counts, rows))
}

fn write_part(path: &Path, (counts, rows): &Part) -> Result<(), FileError> {
    let mut writer = Writer::create(path, KIND)?;
    writer.begin("counts")?;
    writer.write_u32s(counts)?;
    let bits: Vec<u32> = rows.iter().map(|value| value.to_bits()).collect();
    writer.begin("rows")?;
    writer.write_u32s(&bits)?;
    writer.finish()
}

/// Reads a part whole; `None` where it is missing, damaged, or of other sizes.
fn read_part(path: &Path, documents: usize, dimension: usize) -> Option<Part> {
    let file = File::open(path, KIND).ok()?;
    file.verify().ok()?;
    let words = |name| file.section(name).ok()?.u32s().ok();
    let (counts, bits) = (words("counts")?, words("rows")?);
    let counts: Vec<u32> = (0..counts.len()).map_while(|at| counts.get(at)).collect();
    let total: u64 = counts.iter().map(|&count| u64::from(count)).sum();
    if counts.len() != documents || total.checked_mul(dimension as u64)? != bits.len() as u64 {
        return None;
    }
    let rows = (0..bits.len()).map_while(|at| bits.get(at).map(f32::from_bits));
    Some((counts, rows.collect()))
}
