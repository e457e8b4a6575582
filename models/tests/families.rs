//! Every family, from GGUF and from safetensors, against llama.cpp on tiny models of made-up weights.
//!
//! The weights are a function of name and index, the same here and in `fixtures/families.py`, which wrote
//! `fixtures/families.json` from llama.cpp.

use std::collections::HashMap;
use std::fs::File;
use std::path::{Path, PathBuf};

use candle_core::quantized::gguf_file::{self, Value};
use candle_core::quantized::{GgmlDType, QTensor};
use candle_core::{Device, Tensor};
use models::language_model::{
    Branch, Device as Place, LanguageModel, ModelOptions, Wanted, log_normaliser,
};
use serde_json::json;

/// `llama-biased` is the family with every bias that it can have.
const CASES: [&str; 5] = ["llama", "llama-biased", "qwen2", "qwen3", "gemma3"];
const WIDTH: usize = 64;
const HEADS: usize = 2;
const KEYS: usize = 1;
const HEAD: usize = 32;
const HIDDEN: usize = 96;
const LAYERS: usize = 7;
const VOCABULARY: usize = 288;
const WINDOW: usize = 8;
/// Log-probabilities may differ by that much from llama.cpp's.
const TOLERANCE: f32 = 6e-3;
/// Logits of the two forward passes may differ by that much.
const TENSOR_TOLERANCE: f32 = 1e-3;

fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, &b| {
        (0..8).fold(crc ^ u32::from(b), |crc, _| {
            if crc & 1 == 1 {
                (crc >> 1) ^ 0xedb8_8320
            } else {
                crc >> 1
            }
        })
    })
}

fn noise(name: &str, n: usize) -> Vec<f32> {
    let seed = crc32(name.as_bytes());
    (0..n as u32)
        .map(|i| {
            let v = i.wrapping_mul(2_654_435_761).wrapping_add(seed);
            let v = (v ^ (v >> 15)).wrapping_mul(2_246_822_519);
            let v = v ^ (v >> 13);
            (f64::from(v >> 8) / f64::from(1 << 24) - 0.5) as f32
        })
        .collect()
}

fn family_of(case: &str) -> &str {
    case.split('-').next().unwrap()
}

/// Name in GGUF, name in safetensors, shape, values as safetensors has them.
fn tensors(case: &str) -> Vec<(String, String, Vec<usize>, Vec<f32>)> {
    let (family, biased) = (family_of(case), case.ends_with("-biased"));
    let mut names = vec![
        (
            "token_embd.weight".to_owned(),
            "model.embed_tokens.weight".to_owned(),
            vec![VOCABULARY, WIDTH],
        ),
        (
            "output_norm.weight".to_owned(),
            "model.norm.weight".to_owned(),
            vec![WIDTH],
        ),
    ];
    if family == "llama" {
        names.push((
            "output.weight".to_owned(),
            "lm_head.weight".to_owned(),
            vec![VOCABULARY, WIDTH],
        ));
    }
    for l in 0..LAYERS {
        let mut put = |gguf: &str, own: &str, shape: &[usize]| {
            names.push((
                format!("blk.{l}.{gguf}"),
                format!("model.layers.{l}.{own}"),
                shape.to_vec(),
            ));
        };
        let gemma = family == "gemma3";
        put("attn_norm.weight", "input_layernorm.weight", &[WIDTH]);
        let feed = if gemma {
            "pre_feedforward_layernorm.weight"
        } else {
            "post_attention_layernorm.weight"
        };
        put("ffn_norm.weight", feed, &[WIDTH]);
        for (letter, rows) in [("q", HEADS * HEAD), ("k", KEYS * HEAD), ("v", KEYS * HEAD)] {
            put(
                &format!("attn_{letter}.weight"),
                &format!("self_attn.{letter}_proj.weight"),
                &[rows, WIDTH],
            );
            if family == "qwen2" || biased {
                put(
                    &format!("attn_{letter}.bias"),
                    &format!("self_attn.{letter}_proj.bias"),
                    &[rows],
                );
            }
        }
        put(
            "attn_output.weight",
            "self_attn.o_proj.weight",
            &[WIDTH, HEADS * HEAD],
        );
        if biased {
            put("attn_output.bias", "self_attn.o_proj.bias", &[WIDTH]);
            put("ffn_gate.bias", "mlp.gate_proj.bias", &[HIDDEN]);
            put("ffn_up.bias", "mlp.up_proj.bias", &[HIDDEN]);
            put("ffn_down.bias", "mlp.down_proj.bias", &[WIDTH]);
        }
        if family == "qwen3" || gemma {
            put("attn_q_norm.weight", "self_attn.q_norm.weight", &[HEAD]);
            put("attn_k_norm.weight", "self_attn.k_norm.weight", &[HEAD]);
        }
        if gemma {
            put(
                "post_attention_norm.weight",
                "post_attention_layernorm.weight",
                &[WIDTH],
            );
            put(
                "post_ffw_norm.weight",
                "post_feedforward_layernorm.weight",
                &[WIDTH],
            );
        }
        put("ffn_gate.weight", "mlp.gate_proj.weight", &[HIDDEN, WIDTH]);
        put("ffn_up.weight", "mlp.up_proj.weight", &[HIDDEN, WIDTH]);
        put("ffn_down.weight", "mlp.down_proj.weight", &[WIDTH, HIDDEN]);
    }
    names
        .into_iter()
        .map(|(gguf, own, shape)| {
            let scale = if gguf == "token_embd.weight" || shape.len() == 1 {
                0.5
            } else {
                0.25
            };
            let one = if gguf.contains("norm") { 1.0 } else { 0.0 };
            let values = noise(&gguf, shape.iter().product())
                .into_iter()
                .map(|v| v * scale + one)
                .collect();
            (gguf, own, shape, values)
        })
        .collect()
}

fn byte_entries() -> Vec<String> {
    let hidden = |b: u32| b <= 32 || (127..=160).contains(&b) || b == 173;
    let mut next = 256;
    (0..256u32)
        .map(|b| {
            let c = if hidden(b) { next } else { b };
            next += u32::from(hidden(b));
            char::from_u32(c).unwrap().to_string()
        })
        .collect()
}

fn texts(values: impl IntoIterator<Item = String>) -> Value {
    Value::Array(values.into_iter().map(Value::String).collect())
}

fn write_gguf(case: &str, path: &Path) {
    let family = family_of(case);
    let number = |n: usize| Value::U32(n as u32);
    let own = |key: &str| format!("{family}.{key}");
    let tokens = byte_entries()
        .into_iter()
        .chain((0..32).map(|i| format!("<|control{i}|>")));
    let kinds = (0..VOCABULARY).map(|i| Value::I32(if i < 256 { 1 } else { 3 }));
    let mut metadata = vec![
        (
            "general.architecture".to_owned(),
            Value::String(family.to_owned()),
        ),
        (own("context_length"), number(256)),
        (own("embedding_length"), number(WIDTH)),
        (own("block_count"), number(LAYERS)),
        (own("feed_forward_length"), number(HIDDEN)),
        (own("attention.head_count"), number(HEADS)),
        (own("attention.head_count_kv"), number(KEYS)),
        (own("attention.key_length"), number(HEAD)),
        (own("attention.layer_norm_rms_epsilon"), Value::F32(1e-5)),
        (own("rope.freq_base"), Value::F32(20_000.0)),
        (
            "tokenizer.ggml.model".to_owned(),
            Value::String("gpt2".to_owned()),
        ),
        (
            "tokenizer.ggml.pre".to_owned(),
            Value::String("smollm".to_owned()),
        ),
        ("tokenizer.ggml.tokens".to_owned(), texts(tokens)),
        (
            "tokenizer.ggml.token_type".to_owned(),
            Value::Array(kinds.collect()),
        ),
        (
            "tokenizer.ggml.merges".to_owned(),
            texts(["a b".to_owned()]),
        ),
        ("tokenizer.ggml.eos_token_id".to_owned(), number(256)),
        (
            "tokenizer.ggml.add_bos_token".to_owned(),
            Value::Bool(false),
        ),
    ];
    if family == "gemma3" {
        metadata.push((own("attention.sliding_window"), number(WINDOW)));
    }
    let tensors: Vec<(String, QTensor)> = tensors(case)
        .into_iter()
        .map(|(name, _, shape, mut values)| {
            if family == "llama" && (name.contains("attn_q.") || name.contains("attn_k.")) {
                values = reordered(&values, shape.get(1).copied().unwrap_or(1));
            }
            let tensor = Tensor::from_vec(values, shape, &Device::Cpu).unwrap();
            (name, QTensor::quantize(&tensor, GgmlDType::F32).unwrap())
        })
        .collect();
    let metadata: Vec<(&str, &Value)> = metadata.iter().map(|(k, v)| (k.as_str(), v)).collect();
    let tensors: Vec<(&str, &QTensor)> = tensors.iter().map(|(k, v)| (k.as_str(), v)).collect();
    gguf_file::write(&mut File::create(path).unwrap(), &metadata, &tensors).unwrap();
}

/// Rows of each head from halves to neighbours, as the converter does for Llama.
fn reordered(values: &[f32], columns: usize) -> Vec<f32> {
    let rows: Vec<&[f32]> = values.chunks_exact(columns).collect();
    (0..rows.len())
        .flat_map(|r| {
            let (head, within) = (r / HEAD, r % HEAD);
            rows[head * HEAD + within % 2 * (HEAD / 2) + within / 2].to_vec()
        })
        .collect()
}

fn write_folder(case: &str, gguf: &Path, folder: &Path) {
    let family = family_of(case);
    std::fs::create_dir_all(folder).unwrap();
    let minus = if family == "gemma3" { 1.0 } else { 0.0 };
    let tensors: HashMap<String, Tensor> = tensors(case)
        .into_iter()
        .map(|(gguf, own, shape, mut values)| {
            if gguf.contains("norm") {
                values.iter_mut().for_each(|v| *v -= minus);
            }
            (own, Tensor::from_vec(values, shape, &Device::Cpu).unwrap())
        })
        .collect();
    candle_core::safetensors::save(&tensors, folder.join("model.safetensors")).unwrap();
    let mut config = json!({
        "model_type": if family == "gemma3" { "gemma3_text" } else { family },
        "hidden_size": WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": KEYS, "head_dim": HEAD,
        "intermediate_size": HIDDEN, "num_hidden_layers": LAYERS, "max_position_embeddings": 256,
        "rms_norm_eps": 1e-5, "rope_theta": 20000.0, "eos_token_id": [256, 259],
    });
    if case.ends_with("-biased") {
        config["attention_bias"] = json!(true);
        config["mlp_bias"] = json!(true);
    }
    if family == "gemma3" {
        config["sliding_window"] = json!(WINDOW);
        config["query_pre_attn_scalar"] = json!(HEAD);
        config["hidden_activation"] = json!("gelu_pytorch_tanh");
    }
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
    let settings = json!({"bos_token": "<|control1|>", "eos_token": {"content": "<|control2|>"},
        "chat_template": "{{ bos_token }}{% for m in messages %}{{ m.content }}{% endfor %}"});
    std::fs::write(folder.join("tokenizer_config.json"), settings.to_string()).unwrap();
    let tokenizer = models::tokenizer::Tokenizer::from_gguf(gguf).unwrap();
    std::fs::write(folder.join("tokenizer.json"), tokenizer.to_json().unwrap()).unwrap();
}

fn open(path: &Path) -> LanguageModel {
    LanguageModel::open(path, &ModelOptions::default()).unwrap()
}

#[test]
fn every_family_equals_llama_cpp_from_both_kinds_of_file() {
    let fixture: serde_json::Value =
        serde_json::from_str(include_str!("fixtures/families.json")).unwrap();
    let number = |v: &serde_json::Value| v.as_u64().unwrap() as usize;
    let tokens: Vec<u32> = fixture["tokens"]
        .as_array()
        .unwrap()
        .iter()
        .map(|v| number(v) as u32)
        .collect();
    let scratch = tempfile::tempdir().unwrap();
    for family in CASES {
        let gguf: PathBuf = scratch.path().join(format!("{family}.gguf"));
        let folder = scratch.path().join(family);
        write_gguf(family, &gguf);
        write_folder(family, &gguf, &folder);
        for model in [open(&gguf), open(&folder)] {
            let logits = model
                .forward(&mut model.new_cache(), &tokens, Wanted::All)
                .unwrap();
            // Chunks give the same bits, across the window too.
            let mut cache = model.new_cache();
            for (n, chunk) in tokens.chunks(7).enumerate() {
                let some = model.forward(&mut cache, chunk, Wanted::All).unwrap();
                for i in 0..chunk.len() {
                    assert_eq!(some.row(i), logits.row(7 * n + i), "{family}");
                }
            }
            let mut largest = 0.0f32;
            for case in fixture["families"][family].as_array().unwrap() {
                let row = logits.row(number(&case["length"]) - 1);
                let normaliser = log_normaliser(row);
                for pair in case["top"].as_array().unwrap() {
                    let expected = pair[1].as_f64().unwrap() as f32;
                    largest = largest.max((row[number(&pair[0])] - normaliser - expected).abs());
                }
            }
            println!("{family}: largest difference of a log-probability: {largest}");
            assert!(largest < TOLERANCE, "{family}: {largest}");
        }
        let model = open(&folder);
        assert_eq!(model.end_tokens(), [256, 258, 259]);
        let messages = [models::chat::Message::new("user", "ab<|control1|>")];
        let ids = model
            .chat_template()
            .unwrap()
            .render(&messages, false, model.tokenizer())
            .unwrap();
        assert_eq!(
            (ids[0], model.tokenizer().decode(&ids)),
            (257, "ab<|control1|>".to_owned())
        );
    }
}

#[test]
fn damaged_files_are_refused_by_name() {
    let scratch = tempfile::tempdir().unwrap();
    let (gguf, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    write_gguf("llama", &gguf);
    write_folder("llama", &gguf, &folder);
    let message = |path: &Path| {
        LanguageModel::open(path, &ModelOptions::default())
            .unwrap_err()
            .to_string()
    };
    let whole = std::fs::read(&gguf).unwrap();
    let step = whole.len() / 23;
    for length in (0..whole.len())
        .step_by(step)
        .chain([1, 4, 8, 24, whole.len() - 1])
    {
        std::fs::write(&gguf, &whole[..length]).unwrap();
        assert!(message(&gguf).contains("m.gguf"), "cut to {length}");
    }
    // Any byte of the metadata may be wrong: an error or a model, never a panic.
    for at in (0..6000).step_by(37) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x81;
        std::fs::write(&gguf, &bytes).unwrap();
        if let Ok(model) = LanguageModel::open(&gguf, &ModelOptions::default()) {
            let _ = model.forward(&mut model.new_cache(), &[1, 2, 3], Wanted::Last);
        }
    }
    std::fs::write(&gguf, b"<!DOCTYPE html>").unwrap();
    assert!(message(&gguf).contains("not a GGUF model"));
    let file = folder.join("model.safetensors");
    let whole = std::fs::read(&file).unwrap();
    for length in [0, 7, 8, 100, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&file, &whole[..length]).unwrap();
        assert!(
            message(&folder).contains("model.safetensors"),
            "cut to {length}"
        );
    }
    let mut bytes = whole.clone();
    bytes[..8].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(&file, &bytes).unwrap();
    assert!(message(&folder).contains("header"));
    std::fs::write(folder.join("config.json"), r#"{"model_type":"bert"}"#).unwrap();
    assert!(message(&folder).contains("'bert' is not a known family"));
    std::fs::write(
        folder.join("config.json"),
        r#"{"model_type":"llama","hidden_size":9e99}"#,
    )
    .unwrap();
    assert!(message(&folder).contains("hidden_size"));
    std::fs::remove_file(folder.join("config.json")).unwrap();
    assert!(message(&folder).contains("no model in it"));
    assert!(message(&scratch.path().join("nowhere")).contains("nowhere"));
}

fn read_config(folder: &Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(folder.join("config.json")).unwrap()).unwrap()
}

fn write_config(folder: &Path, config: &serde_json::Value) {
    std::fs::write(folder.join("config.json"), config.to_string()).unwrap();
}

fn rows(model: &LanguageModel) -> Vec<f32> {
    let tokens: Vec<u32> = (0..40).map(|i| (i * 37 + i * i) % 256).collect();
    model
        .forward(&mut model.new_cache(), &tokens, Wanted::All)
        .unwrap()
        .into_values()
}

#[test]
fn configurations_that_say_the_same_give_the_same_bits() {
    let scratch = tempfile::tempdir().unwrap();
    let (gguf, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    write_gguf("gemma3", &gguf);
    write_folder("gemma3", &gguf, &folder);
    let flat = read_config(&folder);
    let same = |model: &LanguageModel, expected: &[f32], what: &str| {
        assert!(rows(model) == expected, "{what}");
    };
    let with = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut config = flat.clone();
        change(&mut config);
        write_config(&folder, &config);
        open(&folder)
    };
    let expected = rows(&with(&|_| {}));
    let linear = rows(&with(&|c| {
        c["rope_scaling"] = json!({"rope_type": "linear", "factor": 4.0});
        c["rope_local_base_freq"] = json!(5000.0);
    }));
    assert!(linear != expected);
    // Version 5 of transformers keeps positions by kind of layer, and says the kinds.
    let by_kind = with(&|c| {
        c.as_object_mut().unwrap().remove("rope_theta");
        c["rope_parameters"] = json!({
            "full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 20000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 5000.0}});
        c["layer_types"] = (1..=LAYERS)
            .map(|n| {
                if n % 6 == 0 {
                    "full_attention"
                } else {
                    "sliding_attention"
                }
            })
            .collect();
    });
    same(&by_kind, &linear, "rope_parameters by kind");
    let others = with(&|c| {
        c["layer_types"] = (0..LAYERS).map(|_| "full_attention").collect();
    });
    assert!(rows(&others) != expected, "layer_types");
    // A model that sees pictures holds the language model inside, in one of two ways.
    let weights = folder.join("model.safetensors");
    let tensors = candle_core::safetensors::load(&weights, &Device::Cpu).unwrap();
    for (before, after) in [
        ("model.", "language_model.model."),
        ("model.", "model.language_model."),
    ] {
        let mut renamed: HashMap<String, Tensor> = tensors
            .iter()
            .map(|(name, t)| (name.replacen(before, after, 1), t.clone()))
            .collect();
        let picture = Tensor::zeros((2, 2), candle_core::DType::F32, &Device::Cpu).unwrap();
        renamed.insert(
            "vision_tower.encoder.layers.0.fc1.weight".to_owned(),
            picture,
        );
        candle_core::safetensors::save(&renamed, &weights).unwrap();
        let mut text = flat.clone();
        text["model_type"] = json!("gemma3_text");
        text.as_object_mut().unwrap().remove("eos_token_id");
        let config = json!({"model_type": "gemma3", "eos_token_id": [256, 259], "text_config": text,
            "vision_config": {"hidden_size": 2}});
        write_config(&folder, &config);
        let model = open(&folder);
        same(&model, &expected, after);
        assert_eq!(model.end_tokens(), [256, 258, 259]);
    }
}

#[test]
fn what_the_forward_pass_does_not_do_is_refused() {
    let scratch = tempfile::tempdir().unwrap();
    let (gguf, folder) = (scratch.path().join("m.gguf"), scratch.path().join("m"));
    let message = |path: &Path| {
        LanguageModel::open(path, &ModelOptions::default())
            .unwrap_err()
            .to_string()
    };
    // Biases in the file that the configuration does not name, and the reverse.
    write_gguf("llama-biased", &gguf);
    write_folder("llama-biased", &gguf, &folder);
    let config = read_config(&folder);
    for (flag, tensor) in [
        ("attention_bias", "self_attn.k_proj.bias"),
        ("mlp_bias", "mlp.down_proj.bias"),
    ] {
        let mut other = config.clone();
        other[flag] = json!(false);
        write_config(&folder, &other);
        assert!(message(&folder).contains(tensor), "{}", message(&folder));
    }
    write_gguf("llama", &gguf);
    write_folder("llama", &gguf, &folder);
    let config = read_config(&folder);
    let mut other = config.clone();
    other["attention_bias"] = json!(true);
    write_config(&folder, &other);
    assert!(message(&folder).contains("self_attn.q_proj.bias: missing"));
    // Positions of a kind that is not known, wherever they stand.
    for (name, section) in [
        ("rope_scaling", json!({"type": "yarn", "factor": 4.0})),
        (
            "rope_scaling",
            json!({"rope_type": "dynamic", "factor": 4.0}),
        ),
        ("rope_scaling", json!({"factor": 4.0})),
        ("rope_scaling", json!("linear")),
        (
            "rope_parameters",
            json!({"rope_type": "longrope", "rope_theta": 1e4}),
        ),
        (
            "rope_parameters",
            json!({"rope_theta": 1e4, "partial_rotary_factor": 0.5}),
        ),
        (
            "rope_parameters",
            json!({"full_attention": {"rope_type": "yarn", "factor": 2.0}}),
        ),
        ("final_logit_softcapping", json!(30.0)),
        ("use_bidirectional_attention", json!(true)),
        ("layer_types", json!(["full_attention"])),
    ] {
        let mut other = config.clone();
        other[name] = section.clone();
        write_config(&folder, &other);
        let message = message(&folder);
        assert!(
            message.contains("config.json")
                && (message.contains("rope")
                    || message.contains(name)
                    || message.contains("partial_rotary_factor")),
            "{name} {section}: {message}"
        );
    }
    // A tensor of GGUF that no step uses.
    write_gguf("llama-biased", &gguf);
    let mut bytes = std::fs::read(&gguf).unwrap();
    let (name, other) = (b"blk.3.attn_q.bias", b"blk.3.attn_z.bias");
    let at = bytes.windows(name.len()).position(|w| w == name).unwrap();
    bytes[at..at + name.len()].copy_from_slice(other);
    std::fs::write(&gguf, &bytes).unwrap();
    assert!(message(&gguf).contains("blk.3.attn_z.bias"));
    for device in [Place::Cuda(0), Place::Metal(0)] {
        let options = ModelOptions {
            device,
            ..ModelOptions::default()
        };
        // Where the feature is compiled in, there may be no device, or one.
        if let Err(error) = LanguageModel::open(&gguf, &options) {
            let error = error.to_string();
            assert!(
                error.contains(&device.to_string()) || error.contains("attn_z"),
                "{error}"
            );
        }
    }
}

fn largest_difference(a: &[f32], b: &[f32]) -> f32 {
    assert_eq!(a.len(), b.len());
    a.iter()
        .zip(b)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f32::max)
}

#[test]
fn tensors_give_the_logits_of_the_kernels() {
    let scratch = tempfile::tempdir().unwrap();
    let tokens: Vec<u32> = (0..60).map(|i| (i * 37 + i * i) % 256).collect();
    for case in CASES {
        let gguf = scratch.path().join(format!("{case}.gguf"));
        let folder = scratch.path().join(case);
        write_gguf(case, &gguf);
        write_folder(case, &gguf, &folder);
        for path in [&gguf, &folder] {
            let own = open(path);
            let options = ModelOptions {
                device: Place::Tensors,
                threads: Some(1),
                ..ModelOptions::default()
            };
            let other = LanguageModel::open(path, &options).unwrap();
            assert_eq!(other.logit_width(), own.logit_width());
            let expected = own
                .forward(&mut own.new_cache(), &tokens, Wanted::All)
                .unwrap();
            let close = |found: &models::language_model::Logits, first: usize, what: &str| {
                for i in 0..found.rows() {
                    let largest = largest_difference(found.row(i), expected.row(first + i));
                    assert!(largest < TENSOR_TOLERANCE, "{case} {what}, {i}: {largest}");
                }
            };
            let mut cache = other.new_cache();
            let found = other.forward(&mut cache, &tokens, Wanted::All).unwrap();
            assert_eq!(found.rows(), tokens.len());
            close(&found, 0, "at once");
            // In chunks, across the window and after going back.
            for size in [1, 3, 7, 25] {
                cache.truncate(5);
                for (n, chunk) in tokens[5..].chunks(size).enumerate() {
                    let found = other.forward(&mut cache, chunk, Wanted::All).unwrap();
                    close(&found, 5 + n * size, "in chunks");
                }
                assert_eq!(cache.tokens(), tokens);
            }
            // Branches of one trunk in one pass, one of them ahead, one of them empty.
            let mut trunk = cache.fork();
            trunk.truncate(33);
            let mut ahead = trunk.fork();
            other
                .forward(&mut ahead, &tokens[33..40], Wanted::None)
                .unwrap();
            let (mut first, mut empty) = (trunk.fork(), trunk.fork());
            let found = other
                .forward_branches(&mut [
                    Branch {
                        cache: &mut first,
                        tokens: &tokens[33..44],
                        wanted: Wanted::All,
                    },
                    Branch {
                        cache: &mut empty,
                        tokens: &[],
                        wanted: Wanted::All,
                    },
                    Branch {
                        cache: &mut ahead,
                        tokens: &tokens[40..43],
                        wanted: Wanted::At(&[2]),
                    },
                ])
                .unwrap();
            close(&found[0], 33, "first branch");
            assert_eq!((found[1].rows(), found[2].rows()), (0, 1));
            close(&found[2], 42, "branch ahead");
            assert_eq!((trunk.len(), first.len(), ahead.len()), (33, 44, 43));
            let found = other
                .forward(&mut trunk, &tokens[33..], Wanted::All)
                .unwrap();
            close(&found, 33, "the trunk itself");
            let mut own_trunk = own.new_cache();
            own.forward(&mut own_trunk, &tokens[..20], Wanted::None)
                .unwrap();
            trunk.truncate(20);
            let continuations: [&[u32]; 3] = [&tokens[20..59], &[7], &[]];
            let (a, b) = (
                own.score_continuations(&own_trunk, &continuations).unwrap(),
                other.score_continuations(&trunk, &continuations).unwrap(),
            );
            for (a, b) in a.iter().zip(&b) {
                assert!(largest_difference(a, b) < TENSOR_TOLERANCE, "{case}");
            }
            // A cache belongs to where it was made; a refused chunk leaves it as it was.
            assert!(own.forward(&mut trunk, &[1], Wanted::Last).is_err());
            assert!(other.forward(&mut own_trunk, &[1], Wanted::Last).is_err());
            assert!(other.forward(&mut trunk, &[9999], Wanted::Last).is_err());
            assert_eq!((trunk.len(), own_trunk.len()), (20, 20));
            assert!(trunk.size() > 0);
        }
    }
}
