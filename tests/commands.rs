//! Completions, manual pages, and results as JSON, through the real binary.

mod common;

use std::fs;

use common::{index_of, verbatim};

#[test]
fn completions_and_pages_name_commands_and_flags() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = verbatim(&["completions", shell]).ended(0).stdout;
        for word in ["window-scorer", "index", "top-k"] {
            assert!(script.contains(word), "{shell}: {word} is missing");
        }
    }
    verbatim(&["completions", "csh"]).refused(&["csh", "bash"]);

    let page = verbatim(&["man"]).ended(0).stdout;
    assert!(page.contains(".TH") && page.contains("ask"), "{page}");
    let page = verbatim(&["man", "index", "build"]).ended(0).stdout;
    assert!(page.contains("group\\-by"), "{page}");
    verbatim(&["man", "index", "burn"]).refused(&["burn", "build"]);
    verbatim(&["man", "ask", "me"]).refused(&["verbatim ask", "me"]);
    let folder = tempfile::tempdir().unwrap();
    let pages = folder.path().join("pages");
    verbatim(&["man", "--out", pages.to_str().unwrap()]).ended(0);
    for name in [
        "verbatim",
        "verbatim-ask",
        "verbatim-index-build",
        "verbatim-eval-plot",
    ] {
        let page = fs::read_to_string(pages.join(format!("{name}.1"))).unwrap();
        assert!(page.contains(".TH"), "{name}");
    }
}

#[test]
fn checks_and_places_as_json() {
    let folder = tempfile::tempdir().unwrap();
    let index = index_of(
        folder.path(),
        &[("1", "Harbour", "A harbour shelters ships.")],
    );
    let verify = [
        "index",
        "verify",
        "--json",
        "--index",
        index.to_str().unwrap(),
    ];
    let good = verbatim(&verify).ended(0).json();
    assert_eq!(
        (&good["good"], &good["documents"]),
        (&true.into(), &1.into())
    );
    let segment = fs::read_dir(index.join("segments"))
        .unwrap()
        .next()
        .unwrap();
    let text = segment.unwrap().path().join("text.bin");
    let mut bytes = fs::read(&text).unwrap();
    let at = bytes
        .windows(8)
        .position(|found| found == b"shelters")
        .unwrap();
    bytes[at] = b'S';
    fs::write(&text, bytes).unwrap();
    let bad = verbatim(&verify).ended(1).json();
    assert_eq!(bad["good"], false);
    assert!(bad["error"].as_str().unwrap().contains("text.bin"), "{bad}");

    let path = verbatim(&["models", "path", "smollm2", "--json"])
        .ended(0)
        .json();
    let verified = verbatim(&["models", "verify", "smollm2", "--json"])
        .ended(0)
        .json();
    let fetched = verbatim(&["models", "fetch", "smollm2", "--offline", "--json"])
        .ended(0)
        .json();
    assert_eq!(
        (&path["name"], &verified[0]["good"]),
        (&"smollm2".into(), &true.into())
    );
    assert_eq!(fetched[0]["path"], path["path"]);
}
