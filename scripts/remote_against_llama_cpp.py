#!/usr/bin/env python3
"""Asks the same GGUF twice, once in this program and once behind llama-cpp-python's server on the loopback
address, and compares what `verbatim read` prints.

Not part of the test suite: the server is compiled from C++ when it is installed.

    python3 -m venv venv && venv/bin/pip install 'llama-cpp-python[server]'
    venv/bin/python scripts/remote_against_llama_cpp.py target/release/verbatim

Exit code 0 if every answer through the server came back whole, streamed and not, and both generators were given
the same passages; the answers themselves may differ, since the arithmetic does, and so may the tokens of the
prompts, which are printed side by side: whether template and begin token are the same is seen there.
"""

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
        [sys.executable, "-m", "llama_cpp.server", "--model", gguf, "--port", str(port), "--n_ctx", "2048"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(120):
            try:
                urllib.request.urlopen(f"{address}/v1/models", timeout=1)
                break
            except OSError:
                if server.poll() is not None:
                    sys.exit("the server did not start; is llama-cpp-python[server] installed?")
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
    finally:
        server.terminate()
        server.wait()
    print("ok")


if __name__ == "__main__":
    main()
