"""Writes the reference outputs that the encoders' tests compare against.

Made with transformers 4.48.3 (its Flax models: the same architectures as its PyTorch ones, on the
same weights, without PyTorch), jax 0.4.35, flax 0.10.2, tokenizers 0.21, numpy 2.1:

    python encoders.py MINILM_FOLDER SPLADE_FOLDER

where the folders are those that `fetch` makes for `minilm` and `splade-tiny`. The cross-encoders
are tiny models of random weights; they are written beside the outputs.
"""

import json
import shutil
import sys
import tempfile
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file, save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoTokenizer,
    BertConfig,
    FlaxBertForMaskedLM,
    FlaxBertForSequenceClassification,
    FlaxBertModel,
    FlaxXLMRobertaForSequenceClassification,
    XLMRobertaConfig,
)

HERE = Path(__file__).parent
TEXTS = [
    "Alexander Fleming discovered penicillin in 1928 at St Mary's Hospital in London.",
    "Who discovered penicillin?",
    "",
    " \t\r\n ",
    "Ünïcödé, naïve café — “quotes” … and a soft\u00adhyphen",
    "東京は日本の首都である。Mount Fuji 富士山",
    "क्या यह काम करता है? עברית עם ניקוד נִקּוּד العربية",
    "emoji 👩‍👩‍👧‍👦 🇫🇷 and combining e\u0301",
    "[SEP] is no separator here, and neither is [CLS] or [PAD] [MASK] [UNK]",
    "a" * 150 + " pneumonoultramicroscopicsilicovolcanoconiosis",
    "The treaty was signed in the Hall of Mirrors at the Palace of Versailles. " * 30,
]
PAIRS = [
    ("who discovered penicillin", "fleming found a mould in london"),
    ("who discovered penicillin", ""),
    ("", ""),
    ("what is the capital of japan", "tokyo is the capital of japan and its largest city " * 12),
    ("[SEP] who", "</s> is <s> text [SEP] too"),
]
WORDS = (
    "who what is the of in a and its to too text discovered penicillin fleming found mould "
    "london capital japan tokyo largest city"
).split()


def rounded(values, digits=6):
    return [round(float(value), digits) for value in values]


def write(name, value):
    (HERE / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def sentences(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    model = FlaxBertModel.from_pretrained(folder)
    cases = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=256, return_tensors="np")
        hidden = np.asarray(model(**inputs).last_hidden_state[0])
        vector = hidden.mean(axis=0)
        vector /= np.linalg.norm(vector)
        cases.append({"text": text, "tokens": len(hidden), "vector": rounded(vector)})
    write("minilm.json", cases)


def sparse(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder, split_special_tokens=True)
    with tempfile.TemporaryDirectory() as renamed:
        shutil.copytree(folder, renamed, dirs_exist_ok=True)
        weights = load_file(f"{folder}/model.safetensors")
        names = {
            name: name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")
            for name in weights
        }
        weights = {names[name]: weights[name] for name in weights}
        save_file(weights, f"{renamed}/model.safetensors", metadata={"format": "pt"})
        model = FlaxBertForMaskedLM.from_pretrained(renamed)
    cases = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=256, return_tensors="np")
        logits = np.asarray(model(**inputs).logits[0])
        weights = np.log1p(np.maximum(logits, 0)).max(axis=0)
        ids = np.nonzero(weights > 0)[0]
        strongest = sorted(ids, key=lambda id: -weights[id])[:60]
        cases.append({
            "text": text,
            "nonzero": len(ids),
            "sum": round(float(weights.sum()), 4),
            "strongest": [[int(id), round(float(weights[id]), 6)] for id in strongest],
        })
    write("splade_tiny.json", cases)


def bert_tokenizer():
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[", "]", "<", ">", "/", "sep", "##s", "s"]
    vocabulary += [word for word in WORDS]
    tokenizer = Tokenizer(models.WordPiece({word: at for at, word in enumerate(vocabulary)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(vocabulary[:5])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
    )
    return tokenizer, len(vocabulary)


def roberta_tokenizer():
    pieces = ["<s>", "<pad>", "</s>", "<unk>", "▁"]
    pieces += [f"▁{word}" for word in WORDS] + list("<>/s[]SEPabcdeghilmnoprtuvwy")
    pieces = list(dict.fromkeys(pieces))
    scores = [(piece, -float(at) / 10) for at, piece in enumerate(pieces)]
    tokenizer = Tokenizer(models.Unigram(scores, unk_id=3))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.add_special_tokens(pieces[:4])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>",
        pair="<s> $A </s> </s> $B </s>",
        special_tokens=[("<s>", 0), ("</s>", 2)],
    )
    return tokenizer, len(pieces)


def cross(name, config, model_class, tokenizer, max_tokens, random):
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    model = model_class(config, seed=1)
    # The weights under the names that PyTorch models are published with.
    base = "bert" if name.endswith("bert") else "roberta"
    weights = {}

    def put(path, value):
        parts = list(path)
        if parts[-1] == "kernel":
            parts[-1], value = "weight", value.T
        if parts[-1] in ("scale", "embedding"):
            parts[-1] = "weight"
        weights[".".join(parts)] = np.ascontiguousarray(value, dtype=np.float32)

    def walk(tree, path):
        for key, value in tree.items():
            if isinstance(value, dict):
                walk(value, path + [key])
            else:
                put(path + [key], np.asarray(value))

    def randomised(tree):
        return {
            key: randomised(value)
            if isinstance(value, dict)
            else (np.asarray(value) + random.normal(0, 0.25, value.shape)).astype(np.float32)
            for key, value in tree.items()
        }

    params = randomised(model.params)
    walk(params, [])
    save_file(weights, str(folder / "model.safetensors"), metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config.to_dict(), indent=1, sort_keys=True) + "\n")
    tokenizer.save(str(folder / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    tokenizer.enable_truncation(max_tokens)
    cases = []
    for first, second in PAIRS:
        encoding = tokenizer.encode(first, second)
        segments = encoding.type_ids if base == "bert" else [0] * len(encoding.ids)
        logits = model(
            np.array([encoding.ids]),
            attention_mask=np.ones((1, len(encoding.ids)), dtype=np.int32),
            token_type_ids=np.array([segments]),
            params=params,
        ).logits[0]
        cases.append({"question": first, "passage": second, "tokens": len(encoding.ids), "score": rounded(logits)[0]})
    write(f"{name}.json", cases)


def main():
    minilm, splade = sys.argv[1:]
    sentences(minilm)
    sparse(splade)
    random = np.random.default_rng(7)
    shape = dict(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=40,
        num_labels=1,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    tokenizer, size = bert_tokenizer()
    config = BertConfig(vocab_size=size, max_position_embeddings=64, architectures=["BertForSequenceClassification"], **shape)
    cross("cross_bert", config, FlaxBertForSequenceClassification, tokenizer, 64, random)
    tokenizer, size = roberta_tokenizer()
    config = XLMRobertaConfig(
        vocab_size=size,
        max_position_embeddings=66,
        type_vocab_size=1,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
        layer_norm_eps=1e-5,
        architectures=["XLMRobertaForSequenceClassification"],
        **shape,
    )
    cross("cross_xlm_roberta", config, FlaxXLMRobertaForSequenceClassification, tokenizer, 64, random)


main()
