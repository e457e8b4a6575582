//! Encoders against reference outputs (`reference/encoders.py` says how they were made), and
//! against damaged models.

use std::fs;
use std::path::{Path, PathBuf};

use models::encoder::{CrossEncoder, EncoderError, SentenceEncoder, SparseEncoder};
use models::fetch::{FetchOptions, default_cache, resolve};
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// How far an output may be from the reference.
const TOLERANCE: f32 = 1e-3;

fn reference_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/reference")
}

fn reference<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let text = fs::read(reference_folder().join(name)).expect("a reference file");
    serde_json::from_slice(&text).expect("reference outputs")
}

fn model(name: &str) -> PathBuf {
    let cache = default_cache().expect("a cache folder");
    resolve(name, &FetchOptions::quiet(cache))
        .expect("a model")
        .path
}

#[derive(Deserialize)]
struct Sentence {
    text: String,
    vector: Vec<f32>,
}

#[test]
fn sentence_vectors_are_those_of_the_reference() {
    let encoder = SentenceEncoder::open(model("minilm")).expect("an encoder");
    assert_eq!((encoder.dimension(), encoder.max_tokens()), (384, 256));
    let cases: Vec<Sentence> = reference("minilm.json");
    let texts: Vec<_> = cases.iter().map(|case| case.text.as_str()).collect();
    let together = encoder.embed(&texts).expect("vectors");
    assert_eq!(together.len(), texts.len());
    let mut farthest = 0.0f32;
    for (case, vector) in cases.iter().zip(&together) {
        let alone = encoder.embed(&[&case.text]).expect("a vector");
        assert_eq!(vector.len(), 384);
        let length: f32 = vector.iter().map(|value| value * value).sum();
        assert!((length - 1.0).abs() < 1e-5);
        assert_eq!(vector, &alone[0], "{:?} depends on its company", case.text);
        for (value, expected) in vector.iter().zip(&case.vector) {
            farthest = farthest.max((value - expected).abs());
        }
    }
    println!("farthest from the reference: {farthest:e}");
    assert!(farthest < TOLERANCE);
}

#[test]
fn sentence_vectors_find_what_answers() {
    let encoder = SentenceEncoder::open(model("minilm")).expect("an encoder");
    let texts = [
        "Who discovered penicillin?",
        "Paris is the capital of France.",
        "Alexander Fleming found the antibiotic in 1928.",
        "The cat sat on the mat.",
    ];
    let vectors = encoder.embed(&texts).expect("vectors");
    let cosine = |at: usize| -> f32 {
        vectors[0]
            .iter()
            .zip(&vectors[at])
            .map(|(a, b)| a * b)
            .sum()
    };
    assert!(cosine(2) > cosine(1) && cosine(2) > cosine(3));
    assert!(encoder.embed(&[]).expect("no vectors").is_empty());
}

#[test]
fn encoders_are_shared_between_threads() {
    let encoder = SentenceEncoder::open(model("minilm")).expect("an encoder");
    let expected = encoder.embed(&["one text"]).expect("a vector");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| assert_eq!(encoder.embed(&["one text"]).expect("a vector"), expected));
        }
    });
}

#[derive(Deserialize)]
struct Sparse {
    text: String,
    nonzero: usize,
    sum: f32,
    strongest: Vec<(u32, f32)>,
}

#[test]
fn sparse_vectors_are_those_of_the_reference() {
    let encoder = SparseEncoder::open(model("splade-tiny")).expect("an encoder");
    let cases: Vec<Sparse> = reference("splade_tiny.json");
    let texts: Vec<_> = cases.iter().map(|case| case.text.as_str()).collect();
    let vectors = encoder.encode(&texts).expect("vectors");
    for (case, vector) in cases.iter().zip(&vectors) {
        assert!(vector.ids.is_sorted() && vector.weights.iter().all(|&weight| weight > 0.0));
        // A logit within rounding of 0 may fall on either side.
        assert!(
            vector.ids.len().abs_diff(case.nonzero) <= 1,
            "{:?}",
            case.text
        );
        assert!((vector.weights.iter().sum::<f32>() - case.sum).abs() < 0.01);
        for &(id, expected) in &case.strongest {
            let at = vector.ids.binary_search(&id);
            let weight = at.map_or(0.0, |at| vector.weights[at]);
            assert!(
                (weight - expected).abs() < TOLERANCE,
                "{:?}: {id}: {weight} {expected}",
                case.text
            );
        }
    }
    let strongest = |at: usize| {
        let vector = &vectors[at];
        let most =
            (0..vector.ids.len()).max_by(|&a, &b| vector.weights[a].total_cmp(&vector.weights[b]));
        most.and_then(|most| encoder.token(vector.ids[most]))
    };
    assert!(strongest(0).is_some());
    assert!(vectors[0].dot(&vectors[1]) > vectors[0].dot(&vectors[5]));
}

#[derive(Deserialize)]
struct Pair {
    question: String,
    passage: String,
    score: f32,
}

#[test]
fn cross_encoders_score_as_the_reference() {
    for name in ["cross_bert", "cross_xlm_roberta"] {
        let encoder = CrossEncoder::open(reference_folder().join(name)).expect("a cross-encoder");
        assert_eq!(encoder.max_tokens(), 64);
        let pairs: Vec<Pair> = reference(&format!("{name}.json"));
        for pair in &pairs {
            let scores = encoder
                .score(&pair.question, &[&pair.passage, "london", &pair.passage])
                .expect("scores");
            assert!(
                (scores[0] - pair.score).abs() < TOLERANCE,
                "{name}: {:?}: {scores:?}",
                pair.passage
            );
            assert_eq!(scores[0], scores[2]);
        }
    }
}

/// What an encoder gives for a text has the same bits alone, among others in any order, and on any number of threads.
#[test]
fn nothing_depends_on_company_or_threads() {
    let sentence = SentenceEncoder::open(model("minilm")).expect("an encoder");
    let sparse = SparseEncoder::open(model("splade-tiny")).expect("an encoder");
    let cross = CrossEncoder::open(reference_folder().join("cross_bert")).expect("a cross-encoder");
    let words = "the treaty was signed at the palace by the heads of state of seven countries";
    let texts: Vec<String> = (0..40)
        .map(|at| {
            let cycle = words.split(' ').cycle();
            cycle.skip(at).take(1 + at * 37 % 120).collect::<Vec<_>>()
        })
        .map(|words| words.join(" "))
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let all = |texts: &[&str]| {
        (
            sentence.embed(texts).expect("vectors"),
            sparse.encode(texts).expect("vectors"),
            cross.score("london", texts).expect("scores"),
        )
    };
    let expected = all(&texts);
    for threads in [1, 2, 5] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads);
        let pool = pool.build().expect("threads");
        assert!(
            pool.install(|| all(&texts)) == expected,
            "{threads} threads"
        );
    }
    let turned: Vec<&str> = texts.iter().rev().copied().collect();
    let (mut vectors, mut weights, mut scores) = all(&turned);
    vectors.reverse();
    weights.reverse();
    scores.reverse();
    assert!((vectors, weights, scores) == expected, "in another order");
    for (at, text) in texts.iter().enumerate() {
        let (vector, weights, score) = all(&[text]);
        assert!(vector[0] == expected.0[at], "{text}");
        assert!(weights[0] == expected.1[at], "{text}");
        assert!(score[0] == expected.2[at], "{text}");
    }
}

/// A copy of a tiny model that a test may damage.
fn copy_of(name: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let bytes =
            fs::read(reference_folder().join(name).join(file)).expect("a file of the model");
        fs::write(folder.path().join(file), bytes).expect("a copy");
    }
    folder
}

fn edited(folder: &Path, from: &str, to: &str) {
    let path = folder.join("config.json");
    let text = fs::read_to_string(&path).expect("a configuration");
    assert!(text.contains(from));
    fs::write(path, text.replace(from, to)).expect("an edited configuration");
}

#[test]
fn a_missing_model_is_named() {
    let error = SentenceEncoder::open("no/such/folder").expect_err("an error");
    assert!(matches!(&error, EncoderError::Read { .. }), "{error}");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        let folder = copy_of("cross_bert");
        fs::remove_file(folder.path().join(file)).expect("removed");
        let error = CrossEncoder::open(folder.path())
            .expect_err("an error")
            .to_string();
        assert!(error.contains(file), "{error}");
    }
}

#[test]
fn damaged_weights_are_refused() {
    let whole = fs::read(reference_folder().join("cross_bert/model.safetensors")).expect("weights");
    for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        let folder = copy_of("cross_bert");
        fs::write(folder.path().join("model.safetensors"), &whole[..length]).expect("a cut file");
        let error = CrossEncoder::open(folder.path()).expect_err("an error");
        assert!(
            matches!(&error, EncoderError::File { .. }),
            "{length}: {error}"
        );
    }
    let folder = copy_of("cross_bert");
    let mut huge = u64::MAX.to_le_bytes().to_vec();
    huge.extend_from_slice(&whole[8..]);
    fs::write(folder.path().join("model.safetensors"), huge).expect("a false header");
    assert!(matches!(
        CrossEncoder::open(folder.path()),
        Err(EncoderError::File { .. })
    ));
}

#[test]
fn a_configuration_that_does_not_fit_is_refused() {
    for (from, to) in [
        ("\"num_attention_heads\": 3", "\"num_attention_heads\": 5"),
        ("\"num_attention_heads\": 3", "\"num_attention_heads\": 0"),
        ("\"hidden_size\": 24", "\"hidden_size\": 48"),
        ("\"hidden_size\": 24", "\"hidden_size\": 99999999999"),
        ("\"num_hidden_layers\": 2", "\"num_hidden_layers\": 3"),
        (
            "\"num_hidden_layers\": 2",
            "\"num_hidden_layers\": 4000000000",
        ),
        ("\"vocab_size\": ", "\"vocab_size\": 1"),
        ("\"hidden_act\": \"gelu\"", "\"hidden_act\": \"swish\""),
        ("\"model_type\": \"bert\"", "\"model_type\": \"llama\""),
        (
            "\"position_embedding_type\": \"absolute\"",
            "\"position_embedding_type\": \"relative_key\"",
        ),
        ("{", "["),
    ] {
        let folder = copy_of("cross_bert");
        edited(folder.path(), from, to);
        let error = CrossEncoder::open(folder.path()).expect_err(to);
        assert!(matches!(&error, EncoderError::File { .. }), "{to}: {error}");
    }
}

#[test]
fn models_of_another_kind_are_refused() {
    // The parts of a sparse encoder or of a sentence encoder's further layers are not there.
    let folder = copy_of("cross_bert");
    assert!(matches!(
        SparseEncoder::open(folder.path()),
        Err(EncoderError::File { .. })
    ));
    let modules = r#"[{"type":"sentence_transformers.models.Dense"}]"#;
    fs::write(folder.path().join("modules.json"), modules).expect("a file");
    assert!(matches!(
        SentenceEncoder::open(folder.path()),
        Err(EncoderError::File { .. })
    ));
}

#[test]
fn a_tokenizer_of_another_vocabulary_is_refused() {
    let folder = copy_of("cross_bert");
    let path = folder.path().join("tokenizer.json");
    let text = fs::read_to_string(&path).expect("a tokenizer");
    fs::write(&path, text.replace("\"london\":", "\"london\":9")).expect("another vocabulary");
    let error = CrossEncoder::open(folder.path()).expect_err("an error");
    assert!(matches!(&error, EncoderError::File { .. }), "{error}");
    fs::write(&path, b"{}").expect("no tokenizer");
    assert!(matches!(
        CrossEncoder::open(folder.path()),
        Err(EncoderError::File { .. })
    ));
}
