//! The folder of an evaluation: what it was begun with, and the traces, one object a question.

use std::collections::{HashMap, HashSet};
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use corpus_tools::Index;
use corpus_tools::lock::{LOCK_FILE, LockError, WriterLock};
use corpus_tools::questions::{Question, QuestionSet};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::EvaluationError;
use super::passages::{Retrieved, Sizes};
use crate::session::Cost;

/// Version of the folder's files.
const VERSION: u32 = 1;
const PLAN: &str = "evaluation.json";

/// What an evaluation was run with: enough to run it again.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Version of the format.
    pub version: u32,
    /// The index.
    pub index: IndexNote,
    /// Seed of the sample of questions and of the bootstrap.
    pub seed: u64,
    /// The most questions that were drawn from a set; `None`: all.
    pub limit: Option<usize>,
    /// The numbers k of R@k, ascending.
    pub top_k: Vec<usize>,
    /// Sizes of what is judged.
    pub sizes: Sizes,
    /// Name of the sentence encoder of the dense methods, where there are any.
    pub encoder: Option<String>,
    /// The cross-encoder of the window scorer, where one is named.
    #[serde(default)]
    pub scorer_model: Option<String>,
    /// The sparse model that expands questions, where one is named.
    #[serde(default)]
    pub expand: Option<String>,
    /// Who writes the engine's answers, where that is another model.
    #[serde(default)]
    pub generator: Option<String>,
    /// Who samples for the reranker, where that is another model.
    #[serde(default)]
    pub light_model: Option<String>,
    /// The methods, in the order of the tables.
    pub methods: Vec<MethodNote>,
    /// The question sets.
    pub sets: Vec<SetNote>,
}

/// Which index was asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct IndexNote {
    /// Its folder.
    pub path: String,
    /// Checksum of its manifest.
    pub checksum: String,
    /// Live documents.
    pub documents: u64,
    /// Live tokens.
    pub tokens: u64,
    /// Bytes of the whole folder.
    pub bytes: u64,
}

impl IndexNote {
    /// The note of an open index.
    pub fn of(index: &Index) -> Self {
        let stat = index.stat();
        Self {
            path: index.path().display().to_string(),
            checksum: index.manifest().checksum.clone(),
            documents: stat.documents,
            tokens: stat.tokens,
            bytes: stat.bytes,
        }
    }
}

/// A method with all its settings.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct MethodNote {
    /// Its name.
    pub name: String,
    /// Name of the language model, where it uses one.
    pub model: Option<String>,
    /// Whether it retrieves anything.
    pub retrieves: bool,
    /// Which definition of the method this is: raised where a change of the program changes what it gives, so that
    /// traces of two definitions are not mixed.
    #[serde(default)]
    pub definition: u32,
    /// The settings that count for it.
    pub settings: Value,
}

/// A question set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetNote {
    /// Its name.
    pub name: String,
    /// Where it was read from.
    pub source: String,
    /// Questions in it.
    pub questions: usize,
    /// XXH3 of the questions with their answers and labels; `None` in a folder that was begun before there was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub checksum: Option<String>,
    /// Records that were left out.
    pub bad: usize,
    /// Gold documents that the labels speak of.
    pub gold: usize,
    /// Gold documents that are not in the index: misses for every method.
    pub gold_missing: usize,
}

impl SetNote {
    /// The note of a set that was read from `source`, over this index.
    ///
    /// # Errors
    /// The index is damaged.
    pub fn of(set: &QuestionSet, source: &str, index: &Index) -> Result<Self, EvaluationError> {
        let ids: HashSet<&str> = set.questions.iter().flat_map(Question::gold_ids).collect();
        let mut gold_missing = 0;
        for id in &ids {
            gold_missing += usize::from(index.find_external_id(id)?.is_none());
        }
        Ok(Self {
            name: set.name.clone(),
            source: source.to_owned(),
            questions: set.questions.len(),
            checksum: Some(checksum(&set.questions)),
            bad: set.bad.len(),
            gold: ids.len(),
            gold_missing,
        })
    }
}

/// XXH3 of questions as they are saved.
fn checksum(questions: &[Question]) -> String {
    let mut hash = xxhash_rust::xxh3::Xxh3::new();
    for question in questions {
        hash.update(&serde_json::to_vec(question).unwrap_or_default());
        hash.update(b"\n");
    }
    format!("{:016x}", hash.digest())
}

/// What a method did with a question.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Trace {
    /// The question with its gold answers and labels.
    #[serde(flatten)]
    pub question: Question,
    /// What was retrieved, best first.
    pub retrieved: Vec<Retrieved>,
    /// The answer; `None` where none was asked for.
    pub answer: Option<String>,
    /// What the language model did.
    pub cost: Cost,
    /// Why the question could not be asked, as where its texts do not fit the model; it then counts as a miss, and
    /// not in what the method cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed: Option<String>,
    /// Wall-clock time, cutting left out.
    pub milliseconds: f64,
    /// The method's own trace.
    #[serde(default, skip_serializing_if = "Value::is_null")]
    pub detail: Value,
}

/// The folder of an evaluation.
#[derive(Debug, Clone)]
pub struct Folder {
    path: PathBuf,
}

impl Folder {
    /// The folder at `path`; nothing is read or written yet.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it was begun with; `None` where nothing was begun.
    ///
    /// # Errors
    /// The file cannot be read, or is none of this version.
    pub fn plan(&self) -> Result<Option<Plan>, EvaluationError> {
        let path = self.path.join(PLAN);
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(EvaluationError::io(&path, "read", error)),
        };
        let foreign = |reason: String| EvaluationError::Foreign {
            path: path.clone(),
            line: 1,
            reason,
        };
        let plan: Plan = serde_json::from_slice(&bytes)
            .map_err(|error| foreign(format!("not the plan of an evaluation ({error})")))?;
        if plan.version != VERSION {
            return Err(foreign(format!(
                "version {} of the format, expected {VERSION}",
                plan.version
            )));
        }
        Ok(Some(plan))
    }

    /// As [`Folder::plan`], of a folder that was begun.
    ///
    /// # Errors
    /// As [`Folder::plan`], or there is none.
    pub fn begun_plan(&self) -> Result<Plan, EvaluationError> {
        self.plan()?.ok_or_else(|| {
            let none = std::io::Error::new(
                std::io::ErrorKind::NotFound,
                "there is no evaluation.json: this is no folder of an evaluation",
            );
            EvaluationError::io(&self.path, "read the evaluation", none)
        })
    }

    /// Makes the folder where there is none, and takes its lock: one evaluation writes it at a time.
    ///
    /// # Errors
    /// Another one holds it, or the folder cannot be written.
    pub fn lock(&self) -> Result<WriterLock, EvaluationError> {
        fs::create_dir_all(&self.path)
            .map_err(|source| EvaluationError::io(&self.path, "create the folder", source))?;
        WriterLock::take(&self.path).map_err(|error| match error {
            LockError::Locked(by) => EvaluationError::Locked {
                path: self.path.clone(),
                by: by.map_or_else(String::new, |process| format!(" (process {process})")),
            },
            LockError::Io(action, source) => {
                EvaluationError::io(&self.path.join(LOCK_FILE), action, source)
            }
        })
    }

    /// Begins with `plan` over the question sets `sets`, or goes on with it: what the folder holds from before stays,
    /// methods and sets that are new are added.
    ///
    /// # Errors
    /// The folder was begun with another index, seed, sizes or depth, or with the same method or set in
    /// another form; or it cannot be written.
    pub fn begin(&self, mut plan: Plan, sets: &[QuestionSet]) -> Result<Plan, EvaluationError> {
        plan.version = VERSION;
        if let Some(before) = self.plan()? {
            for note in before.sets.iter().filter(|note| note.checksum.is_none()) {
                if let Some(set) = sets.iter().find(|set| set.name == note.name) {
                    self.check_questions(set, &before.methods)?;
                }
            }
            plan = self.joined(before, plan)?;
        }
        for folder in [self.path.clone(), self.traces(), self.runs()] {
            fs::create_dir_all(&folder)
                .map_err(|source| EvaluationError::io(&folder, "create the folder", source))?;
        }
        let json = serde_json::to_vec_pretty(&plan)
            .map_err(|error| EvaluationError::io(&self.path, "write the plan", error.into()))?;
        self.write(PLAN, &json)?;
        Ok(plan)
    }

    fn begun(&self, what: String) -> EvaluationError {
        EvaluationError::Begun {
            path: self.path.clone(),
            what,
        }
    }

    /// Whether every question that was asked is one of `set`: what tells sets apart in a folder without their
    /// checksums.
    fn check_questions(
        &self,
        set: &QuestionSet,
        methods: &[MethodNote],
    ) -> Result<(), EvaluationError> {
        let known: HashMap<&str, &Question> = set
            .questions
            .iter()
            .map(|question| (question.id.as_str(), question))
            .collect();
        for method in methods {
            for trace in self.read_traces(&set.name, &method.name)? {
                let asked = trace.question;
                if known.get(asked.id.as_str()) != Some(&&asked) {
                    return Err(self.begun(format!(
                        "another question set {} (its question {:?} is another one)",
                        set.name, asked.id
                    )));
                }
            }
        }
        Ok(())
    }

    fn joined(&self, before: Plan, plan: Plan) -> Result<Plan, EvaluationError> {
        let begun = |what: String| self.begun(what);
        let depth = |plan: &Plan| plan.top_k.iter().copied().max().unwrap_or_default();
        if before.index.checksum != plan.index.checksum {
            return Err(begun(format!("another index ({})", before.index.path)));
        }
        if before.seed != plan.seed {
            return Err(begun(format!("another seed ({})", before.seed)));
        }
        if before.sizes != plan.sizes {
            return Err(begun(format!(
                "another size of the cut ({} tokens)",
                before.sizes.cut
            )));
        }
        if depth(&before) != depth(&plan) {
            return Err(begun(format!("another depth (top {})", depth(&before))));
        }
        if let (Some(before), Some(now)) = (&before.encoder, &plan.encoder)
            && before != now
        {
            return Err(begun(format!("another sentence encoder ({before})")));
        }
        let helpers = |plan: &Plan| {
            let all = [
                &plan.scorer_model,
                &plan.expand,
                &plan.generator,
                &plan.light_model,
            ];
            all.map(Clone::clone)
        };
        if helpers(&before) != helpers(&plan) {
            let what = "another scorer model, expansion, generator or light model";
            return Err(begun(what.to_owned()));
        }
        let mut joined = Plan {
            encoder: before.encoder.clone().or_else(|| plan.encoder.clone()),
            methods: before.methods,
            sets: before.sets,
            limit: before
                .limit
                .zip(plan.limit)
                .map(|(one, other)| one.max(other)),
            ..plan.clone()
        };
        for method in plan.methods {
            match joined
                .methods
                .iter()
                .find(|other| other.name == method.name)
            {
                None => joined.methods.push(method),
                Some(other) if *other == method => {}
                Some(other) if other.definition != method.definition => {
                    return Err(begun(format!(
                        "another version of this program, in which {} was another method",
                        method.name
                    )));
                }
                Some(other) => {
                    let model = other.model.as_deref().unwrap_or("no model");
                    return Err(begun(format!(
                        "other settings or another model ({model}) for {}",
                        method.name
                    )));
                }
            }
        }
        for set in plan.sets {
            let same = |other: &SetNote| {
                let checksums = (&other.checksum, &set.checksum);
                let differ = matches!(checksums, (Some(one), Some(two)) if one != two);
                other.questions == set.questions && !differ
            };
            match joined.sets.iter_mut().find(|other| other.name == set.name) {
                None => joined.sets.push(set),
                Some(other) if same(other) => {
                    other.checksum = set.checksum.or(other.checksum.take())
                }
                Some(other) => {
                    return Err(begun(format!(
                        "another question set {} ({} questions from {})",
                        set.name, other.questions, other.source
                    )));
                }
            }
        }
        Ok(joined)
    }

    fn traces(&self) -> PathBuf {
        self.path.join("traces")
    }

    fn runs(&self) -> PathBuf {
        self.path.join("runs")
    }

    /// The file of the traces of a method over a set.
    pub fn trace_file(&self, set: &str, method: &str) -> PathBuf {
        self.traces().join(format!("{}.jsonl", stem(set, method)))
    }

    /// The file of the run of a method over a set, with this ending.
    pub fn run_file(&self, set: &str, method: &str, ending: &str) -> PathBuf {
        self.runs().join(format!("{}.{ending}", stem(set, method)))
    }

    /// The file of the qrels of a set.
    pub fn qrels_file(&self, set: &str) -> PathBuf {
        self.runs().join(format!("{set}.qrels"))
    }

    /// Writes a file of the folder whole or not at all.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write(&self, name: &str, bytes: &[u8]) -> Result<(), EvaluationError> {
        let path = self.path.join(name);
        let partial = self.path.join(format!("{name}.partial"));
        fs::write(&partial, bytes)
            .and_then(|()| fs::rename(&partial, &path))
            .map_err(|source| EvaluationError::io(&path, "write", source))
    }

    /// The traces of a method over a set, in the order in which they were written; none where it was not run.
    /// An unfinished last line is left out.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub fn read_traces(&self, set: &str, method: &str) -> Result<Vec<Trace>, EvaluationError> {
        Ok(read_lines(&self.trace_file(set, method))?.0)
    }

    /// Opens the traces of a method over a set to go on with them.
    ///
    /// # Errors
    /// As [`Folder::read_traces`], or the file cannot be written.
    pub fn open_traces(&self, set: &str, method: &str) -> Result<TraceFile, EvaluationError> {
        let path = self.trace_file(set, method);
        let (traces, whole) = read_lines(&path)?;
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|file| file.set_len(whole).map(|()| file))
            .map_err(|source| EvaluationError::io(&path, "open", source))?;
        Ok(TraceFile {
            done: traces.into_iter().map(|trace| trace.question.id).collect(),
            path,
            file,
        })
    }
}

/// A name of a set and a method that is safe in a file name.
fn stem(set: &str, method: &str) -> String {
    let safe: String = method
        .chars()
        .map(|c| match c {
            c if c.is_ascii_alphanumeric() => c,
            '-' | '_' | '.' | '=' | '+' => c,
            ':' => '~',
            _ => '-',
        })
        .collect();
    format!("{set}.{safe}")
}

/// The traces in a file, and the length of its whole lines.
fn read_lines(path: &Path) -> Result<(Vec<Trace>, u64), EvaluationError> {
    let file = match fs::File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok((Vec::new(), 0)),
        Err(error) => return Err(EvaluationError::io(path, "open", error)),
    };
    let mut reader = BufReader::new(file);
    let (mut traces, mut whole, mut line) = (Vec::new(), 0, Vec::new());
    loop {
        line.clear();
        let read = reader
            .read_until(b'\n', &mut line)
            .map_err(|source| EvaluationError::io(path, "read", source))?;
        if read == 0 || !line.ends_with(b"\n") {
            return Ok((traces, whole));
        }
        whole += read as u64;
        let trace = serde_json::from_slice(&line).map_err(|error| EvaluationError::Foreign {
            path: path.to_owned(),
            line: traces.len() + 1,
            reason: format!("not a trace of an evaluation ({error})"),
        })?;
        traces.push(trace);
    }
}

/// A file of traces that is being written.
#[derive(Debug)]
pub struct TraceFile {
    path: PathBuf,
    file: fs::File,
    done: HashSet<String>,
}

impl TraceFile {
    /// Whether the question with this id was asked already.
    pub fn holds(&self, id: &str) -> bool {
        self.done.contains(id)
    }

    /// Appends a trace; it is on its way to the disk when this returns.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn append(&mut self, trace: &Trace) -> Result<(), EvaluationError> {
        let io = |source| EvaluationError::io(&self.path, "write", source);
        let mut line = serde_json::to_vec(trace).map_err(|error| io(error.into()))?;
        line.push(b'\n');
        self.file
            .write_all(&line)
            .and_then(|()| self.file.flush())
            .map_err(io)?;
        self.done.insert(trace.question.id.clone());
        Ok(())
    }
}
