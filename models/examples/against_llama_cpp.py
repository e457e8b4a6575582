"""The speed of this engine beside llama.cpp's, on one model and machine, alternately in one run.

    cargo build --release -p models --example speed
    python against_llama_cpp.py target/release/examples/speed MODEL.gguf [THREADS] [ROUNDS]    (with xllamacpp)

Prints tokens a second of a 256-token prompt and of 64 tokens one by one, the best of all rounds, and the ratios.
"""
import re
import subprocess
import sys

import xllamacpp as x

speed, model = sys.argv[1:3]
threads, rounds = (int(v) for v in (sys.argv[3:] + ["1", "3"][len(sys.argv[3:]):])[:2])
p = x.CommonParams()
p.model.path = model
p.cpuparams.n_threads = p.cpuparams_batch.n_threads = threads
p.n_ctx, p.n_parallel, p.n_gpu_layers, p.verbosity = 1024, 1, 0, -1
server = x.Server(p)
prompt = [(i * 37) % 40000 + 300 for i in range(256)]
body = {"prompt": prompt, "n_predict": 64, "temperature": 0, "cache_prompt": False, "ignore_eos": True}
theirs, ours = [], []
for _ in range(rounds):
    for _ in range(2):
        t = server.handle_completions(body)["timings"]
        theirs.append((t["prompt_per_second"], t["predicted_per_second"]))
    out = subprocess.run([speed, model, str(threads), "256", "64"], capture_output=True, text=True, check=True).stdout
    found = re.findall(r"prompt of 256 ([0-9.]+) .* one by one ([0-9.]+)", out)
    ours.extend((float(a), float(b)) for a, b in found)
for i, what in enumerate(("prompt", "one by one")):
    a, b = max(v[i] for v in ours), max(v[i] for v in theirs)
    print(f"{what}, {threads} threads: {a:.1f} tokens/s, llama.cpp {b:.1f}, ratio {a / b:.2f}")
