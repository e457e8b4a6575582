#!/usr/bin/env python3
"""Asks the same GGUF twice, once in this program and once behind llama.cpp's own HTTP server on the loopback
address, and compares what `verbatim read` prints.

Not part of the test suite. The server comes with the package xllamacpp, compiled; where that is not installed,
llama-cpp-python's own server is taken.

    python3 -m venv venv && venv/bin/pip install xllamacpp
    venv/bin/python scripts/remote_against_llama_cpp.py target/release/verbatim

Exit code 0 if every answer through the server came back whole, the samples as many as were asked for, both
generators were given the same passages, and a prompt that is too long was refused with advice. The answers
themselves may differ, since the arithmetic does, and so may the tokens of the prompts, which are printed side by
side: whether template and begin token are the same is seen there.
"""

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

QUESTIONS = [
    "Who discovered penicillin?",
    "In which year was penicillin discovered?",
    "Where did Alexander Fleming work?",
]
TEXT = (
    "Alexander Fleming was a Scottish physician. He discovered penicillin in 1928 at St Mary's Hospital in London.\n"
    "Marie Curie discovered polonium and radium. She worked in Paris.\n"
)


# Tokens that the server holds for one conversation, and the conversations it holds at a time.
WINDOW, SLOTS = 2048, 4

XLLAMACPP = f"""
import sys, xllamacpp
params = xllamacpp.CommonParams()
params.model.path = sys.argv[1]
params.hostnames = ["127.0.0.1"]
params.port = int(sys.argv[2])
params.n_parallel = {SLOTS}
params.n_ctx = {WINDOW * SLOTS}
server = xllamacpp.Server(params)
sys.stdin.read()
"""


def server_command(gguf, port):
    if importlib.util.find_spec("xllamacpp"):
        return [sys.executable, "-c", XLLAMACPP, gguf, str(port)]
    module = [sys.executable, "-m", "llama_cpp.server"]
    return [*module, "--model", gguf, "--port", str(port), "--n_ctx", str(WINDOW)]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(binary, *arguments):
    done = subprocess.run([binary, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit code {done.returncode}: {done.stderr}")
    return done.stdout


def main():
    binary = sys.argv[1] if len(sys.argv) > 1 else "target/release/verbatim"
    run(binary, "models", "fetch", "smollm2")
    gguf = run(binary, "models", "path", "smollm2").strip()
    if os.path.isdir(gguf):
        gguf = next(
            os.path.join(folder, name)
            for folder, _, names in os.walk(gguf)
            for name in names
            if name.endswith(".gguf")
        )
    port = free_port()
    server = subprocess.Popen(
        server_command(gguf, port), stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{address}/v1/models", timeout=1)
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit("the server did not start; is xllamacpp installed?")
                time.sleep(0.5)
        else:
            sys.exit("the server did not answer within a minute")
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as text:
            text.write(TEXT)
            text.flush()
            for question in QUESTIONS:
                for extra in (["--method", "order"], ["--method", "f", "--samples", "3"]):
                    answers = []
                    for generator in ([], ["--generator", address, "--light-model", address]):
                        out = run(binary, "read", "--json", *extra, *generator, text.name, question)
                        answers.append(json.loads(out))
                    here, there = answers
                    print(f"{question} {' '.join(extra)}")
                    print(f"  here:   {here['answer']!r} ({here['trace']['prompt_tokens']} tokens)")
                    print(f"  server: {there['answer']!r} ({there['trace']['prompt_tokens']} tokens)")
                    assert there["answer"], "the server's answer is empty"
                    quotes = [[p["quote"] for p in a["passages"]] for a in answers]
                    assert quotes[0] == quotes[1], "other passages"
                    wanted = 3 if "f" in extra else 0
                    assert len(there["trace"]["samples"]["texts"]) == wanted, "too few samples"
                    assert there["trace"]["prompt_tokens"] > 0, "the server does not count tokens"
            text.write("more " * 2 * WINDOW)
            text.flush()
            long = [binary, "read", "--method", "full", "--budget", "100000", "--generator", address]
            refused = subprocess.run([*long, text.name, QUESTIONS[0]], capture_output=True, text=True)
            print(refused.stderr.splitlines()[-1])
            assert refused.returncode == 2 and "smaller budget" in refused.stderr, "not refused with advice"
    finally:
        server.terminate()
        server.wait()
    print("ok")


if __name__ == "__main__":
    main()
