"""The sentence encoder beside onnxruntime's, on the same windows, machine and threads, alternately in one run.

    cargo build --release -p models --example embed
    python against_onnxruntime.py target/release/examples/embed FOLDER CORPUS.jsonl [ROUNDS]
        (with onnx, onnxruntime, numpy, safetensors, tokenizers)

FOLDER is what `verbatim models path minilm` prints. The graph is the usual export of a BERT, mean pooling behind it;
onnxruntime fuses what it can. Windows are read one length at a time, so padding costs it next to nothing. Prints the
processor's time a call and the time that passed, the best of all rounds, and the ratios.
"""
import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import load_file
from tokenizers import Tokenizer

embed, folder, corpus = sys.argv[1], Path(sys.argv[2]), sys.argv[3]
rounds = int(sys.argv[4]) if len(sys.argv) > 4 else 5
config = json.loads((folder / "config.json").read_text())
weights = load_file(folder / "model.safetensors")
size, heads = config["hidden_size"], config["num_attention_heads"]
nodes, constants, count = [], [], 0


def const(value, dtype=np.float32):
    constants.append(numpy_helper.from_array(np.ascontiguousarray(value, dtype=dtype), f"c{len(constants)}"))
    return constants[-1].name


def op(kind, *inputs, **attributes):
    global count
    count += 1
    nodes.append(helper.make_node(kind, list(inputs), [f"v{count}"], **attributes))
    return f"v{count}"


def linear(x, name):
    return op("Add", op("MatMul", x, const(weights[f"{name}.weight"].T)), const(weights[f"{name}.bias"]))


def norm(x, name):
    parts = const(weights[f"{name}.weight"]), const(weights[f"{name}.bias"])
    return op("LayerNormalization", x, *parts, axis=-1, epsilon=config["layer_norm_eps"])


def split(x, order):
    return op("Transpose", op("Reshape", x, const([0, 0, heads, size // heads], np.int64)), perm=order)


e = "embeddings."
places = op("Slice", const(weights[e + "position_embeddings.weight"]), const([0], np.int64), "length")
x = op("Gather", const(weights[e + "word_embeddings.weight"]), "ids")
x = norm(op("Add", op("Add", x, places), const(weights[e + "token_type_embeddings.weight"][0])), e + "LayerNorm")
bias = op("Unsqueeze", op("Mul", op("Sub", "mask", const(1.0)), const(1e9)), const([1, 2], np.int64))
for i in range(config["num_hidden_layers"]):
    n = f"encoder.layer.{i}."
    q, k, v = (split(linear(x, f"{n}attention.self.{part}"), order)
               for part, order in (("query", [0, 2, 1, 3]), ("key", [0, 2, 3, 1]), ("value", [0, 2, 1, 3])))
    scores = op("Add", op("Div", op("MatMul", q, k), const((size // heads) ** 0.5)), bias)
    context = op("Transpose", op("MatMul", op("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
    context = op("Reshape", context, const([0, 0, size], np.int64))
    x = norm(op("Add", linear(context, n + "attention.output.dense"), x), n + "attention.output.LayerNorm")
    y = linear(x, n + "intermediate.dense")
    gate = op("Add", op("Erf", op("Div", y, const(2 ** 0.5))), const(1.0))
    y = op("Mul", op("Mul", y, gate), const(0.5))
    x = norm(op("Add", linear(y, n + "output.dense"), x), n + "output.LayerNorm")
total = op("ReduceSum", op("Mul", x, op("Unsqueeze", "mask", const([2], np.int64))), const([1], np.int64), keepdims=0)
nodes.append(helper.make_node("LpNormalization", [total], ["vectors"], axis=-1, p=2))
graph = helper.make_graph(
    nodes, "bert",
    [helper.make_tensor_value_info("ids", TensorProto.INT64, ["n", "l"]),
     helper.make_tensor_value_info("mask", TensorProto.FLOAT, ["n", "l"]),
     helper.make_tensor_value_info("length", TensorProto.INT64, [1])],
    [helper.make_tensor_value_info("vectors", TensorProto.FLOAT, ["n", size])], constants)
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
model.ir_version = 9
model = model.SerializeToString()
tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
tokenizer.no_padding()
tokenizer.enable_truncation(256)


def theirs(session, texts):
    """Texts in batches of eight of like length, which is quicker for it than one batch or one by one."""
    found = tokenizer.encode_batch(texts)
    order = sorted(range(len(texts)), key=lambda i: len(found[i].ids))
    vectors = np.zeros((len(texts), size), np.float32)
    for first in range(0, len(order), 8):
        part = order[first:first + 8]
        length = max(len(found[i].ids) for i in part)
        ids, mask = np.zeros((len(part), length), np.int64), np.zeros((len(part), length), np.float32)
        for row, i in enumerate(part):
            ids[row, :len(found[i].ids)] = found[i].ids
            mask[row, :len(found[i].ids)] = 1
        vectors[part] = session.run(None, {"ids": ids, "mask": mask, "length": np.array([length])})[0]
    return vectors


for threads in (1, 2):
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    os.environ["TOKENIZERS_PARALLELISM"] = "true" if threads > 1 else "false"
    environment = dict(os.environ, RAYON_NUM_THREADS=str(threads))
    for tokens in (64, 100, 128):
        command = [embed, str(folder), corpus, "32", str(tokens), "3"]
        texts = json.loads(subprocess.run(command, capture_output=True, check=True,
                                          env=dict(environment, SHOW="1")).stdout)
        theirs(session, texts)
        ours, peer = [], []
        for _ in range(rounds):
            out = subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
            ours.append([float(v) for v in re.search(r"best (\d+) ms.*processor (\d+) ms", out).groups()])
            before, passed = time.process_time(), []
            for _ in range(3):
                start = time.perf_counter()
                vectors = theirs(session, texts)
                passed.append((time.perf_counter() - start) * 1e3)
            peer.append([min(passed), (time.process_time() - before) / 3 * 1e3])
        a, b = np.min(ours, axis=0), np.min(peer, axis=0)
        print(f"{threads} threads, 32 windows of {tokens} tokens and a title: {a[0]:.0f} ms, processor {a[1]:.0f} ms; "
              f"onnxruntime {b[0]:.0f} ms, processor {b[1]:.0f} ms; ratio {a[0] / b[0]:.2f}, {a[1] / b[1]:.2f}", flush=True)
