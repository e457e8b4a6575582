//! Damaged and foreign files: opening refuses what headers show, `verify` finds every flipped bit, and a
//! query over a damaged body neither panics nor loops.

use std::fs;
use std::path::Path;

use bitvec::prelude::{BitVec, Lsb0};
use fmindex::{
    BuildOptions, DeadRows, FileError, Index, Segment, Symbol, build_document_indexes,
    build_segment,
};

const FILES: [&str; 3] = ["fm.bwt", "fm.phrases", "document-fm.index"];

fn draw(state: &mut u64, most: u64) -> u64 {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    (*state >> 33) % most
}

/// A segment of a few thousand tokens with every kind of file.
fn segment(dir: &Path) -> Vec<Symbol> {
    let mut state = 11;
    let mut tokens = Vec::new();
    let mut starts = Vec::new();
    for _ in 0..60 {
        starts.push(tokens.len() as u32);
        for _ in 0..draw(&mut state, 3) {
            for _ in 0..draw(&mut state, 90) {
                let (a, b) = (draw(&mut state, 60), draw(&mut state, 60));
                tokens.push((a * b / 60) as u32);
            }
            tokens.push(60);
        }
    }
    let options = BuildOptions {
        alphabet: 61,
        separator: 60,
        threads: 1,
        ..BuildOptions::default()
    };
    build_segment(dir, tokens.clone(), &starts, &options, &()).unwrap();
    let bare = Segment::open(dir).unwrap();
    build_document_indexes(dir, &bare, &()).unwrap();
    tokens
}

/// Every kind of query, whatever it answers.
fn exercise(segment: Segment, tokens: &[Symbol]) {
    let documents = segment.documents();
    for document in (0..documents.min(60)).step_by(7) {
        let _ = segment.document_index(document);
        let span = segment.document_span(document);
        let _ = segment.extract(span.clone());
        let _ = segment.extract_in_one_chain(span.start..span.end.min(span.start + 500));
    }
    for dead in [vec![], vec![1, 2, 3]] {
        let Ok(index) = Index::with_dead_documents(vec![segment.clone()], &[dead]) else {
            continue;
        };
        ask(&index, tokens);
    }
}

fn ask(index: &Index, tokens: &[Symbol]) {
    let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(false, 61);
    let mut next = Vec::new();
    for from in (0..tokens.len() - 4).step_by(tokens.len() / 6) {
        for length in [0, 1, 2, 4] {
            let ranges = index.range(&tokens[from..from + length]);
            index.continuations(&ranges, &mut next);
            index.mask(&ranges, &mut mask);
            let _ = index.count(&ranges) + u64::from(index.allows(&ranges, 3));
            let _ = index.locate(&ranges).take(40).count();
            let _ = index.document_counts(&ranges, 20);
        }
    }
}

#[test]
fn flipped_bytes_are_found_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = segment(dir.path());
    Segment::open(dir.path()).unwrap().verify().unwrap();
    let mut state = 5;
    for name in FILES {
        let path = dir.path().join(name);
        let good = fs::read(&path).unwrap();
        for round in 0..150 {
            // A fresh file in place of the mapped one, never a write into it.
            let mut bad = good.clone();
            let flips = 1 + draw(&mut state, 3) as usize * round % 40;
            for _ in 0..flips {
                let at = draw(&mut state, bad.len() as u64) as usize;
                bad[at] ^= 1 << draw(&mut state, 8);
            }
            fs::remove_file(&path).unwrap();
            fs::write(&path, &bad).unwrap();
            if bad == good {
                continue;
            }
            if let Ok(segment) = Segment::open(dir.path()) {
                assert!(segment.verify().is_err());
                exercise(segment, &tokens);
            }
        }
        // Whole stretches of ones, zeros and noise.
        for fill in [Some(0u8), Some(0xff), None] {
            for part in 0..12 {
                let mut bad = good.clone();
                let from = 64 + (bad.len() - 64) * part / 12;
                let to = 64 + (bad.len() - 64) * (part + 1) / 12;
                for byte in &mut bad[from..to] {
                    *byte = fill.unwrap_or_else(|| draw(&mut state, 256) as u8);
                }
                fs::remove_file(&path).unwrap();
                fs::write(&path, &bad).unwrap();
                if let Ok(segment) = Segment::open(dir.path()) {
                    exercise(segment, &tokens);
                }
            }
        }
        fs::remove_file(&path).unwrap();
        fs::write(&path, &good).unwrap();
    }
    Segment::open(dir.path()).unwrap().verify().unwrap();
}

/// Damage that a header's checksum would catch, with the checksum made right: what a stranger can write.
#[test]
fn forged_numbers_are_survived() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = segment(dir.path());
    let path = dir.path().join("fm.bwt");
    let good = fs::read(&path).unwrap();
    // The section meta stands first, at 64: nine words.
    for word in 0..9 {
        for value in [0u32, 1, 2, 7, 60, 61, 255, 4096, 1 << 20, 1 << 31, u32::MAX] {
            let mut bad = good.clone();
            bad[64 + word * 4..68 + word * 4].copy_from_slice(&value.to_le_bytes());
            fs::remove_file(&path).unwrap();
            fs::write(&path, &bad).unwrap();
            if let Ok(segment) = Segment::open(dir.path()) {
                exercise(segment, &tokens);
            }
        }
    }
}

#[test]
fn damaged_dead_rows_are_found_or_refused_and_survived() {
    let dir = tempfile::tempdir().unwrap();
    let tokens = segment(dir.path());
    let whole = Segment::open(dir.path()).unwrap();
    let path = dir.path().join("dead-1");
    let dead: Vec<u32> = (0..60).step_by(3).collect();
    let marked = DeadRows::mark(&whole, None, &dead).unwrap();
    marked.write(&path).unwrap();
    let unknown = DeadRows::mark(&whole, None, &[60]).unwrap_err();
    assert_eq!((unknown.document, unknown.documents), (60, 60));
    let good = fs::read(&path).unwrap();
    let put = |bytes: &[u8]| {
        fs::remove_file(&path).unwrap();
        fs::write(&path, bytes).unwrap();
        DeadRows::open(&path, &whole)
    };
    let mut state = 17;
    let mut opened = 0;
    for round in 0..400 {
        let mut bad = good.clone();
        let at = draw(&mut state, bad.len() as u64) as usize;
        let until = (at + 1 + 64 * (round % 5)).min(bad.len());
        for byte in &mut bad[at..until] {
            *byte ^= 1 + draw(&mut state, 255) as u8;
        }
        let Ok(dead) = put(&bad) else { continue };
        opened += 1;
        assert!(dead.verify().is_err());
        let index = Index::with_dead_rows(vec![whole.clone()], vec![Some(dead)]).unwrap();
        ask(&index, &tokens);
    }
    assert!(opened > 100, "most damage lies in the body");
    for length in [0, 63, 64, good.len() - 1] {
        let message = put(&good[..length]).unwrap_err().to_string();
        assert!(message.contains("dead-1"), "{message}");
    }

    // Marks of another segment.
    let other = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        alphabet: 61,
        separator: 60,
        ..BuildOptions::default()
    };
    build_segment(other.path(), vec![1, 60], &[0], &options, &()).unwrap();
    let other = Segment::open(other.path()).unwrap();
    put(&good).unwrap();
    let message = DeadRows::open(&path, &other).unwrap_err().to_string();
    assert!(message.contains("dead-1"), "{message}");
    assert!(Index::with_dead_rows(vec![other], vec![Some(marked)]).is_err());
}

#[test]
fn missing_cut_and_mixed_files_are_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    segment(dir.path());
    for name in FILES {
        let path = dir.path().join(name);
        let good = fs::read(&path).unwrap();
        fs::remove_file(&path).unwrap();
        let missing = Segment::open(dir.path());
        if name == "document-fm.index" {
            missing.unwrap();
        } else {
            let message = missing.unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
        }
        for length in [0, 10, 63, 64, good.len() / 2, good.len() - 1] {
            fs::write(&path, &good[..length]).unwrap();
            let message = Segment::open(dir.path()).unwrap_err().to_string();
            assert!(message.contains(name), "{message}");
            fs::remove_file(&path).unwrap();
        }
        let other = FILES[(FILES.iter().position(|n| *n == name).unwrap() + 1) % 3];
        fs::copy(dir.path().join(other), &path).unwrap();
        let mixed = Segment::open(dir.path()).unwrap_err();
        assert!(matches!(mixed, FileError::Foreign { .. }), "{mixed}");
        fs::remove_file(&path).unwrap();
        fs::write(&path, &good).unwrap();
    }
}

#[test]
fn refused_builds_leave_nothing() {
    use fmindex::{BuildError, Progress};
    struct StopAt(std::sync::atomic::AtomicUsize);
    impl Progress for StopAt {
        fn interrupted(&self) -> bool {
            let left = &self.0;
            left.fetch_sub(1, std::sync::atomic::Ordering::Relaxed) == 0
        }
    }
    let dir = tempfile::tempdir().unwrap();
    let options = BuildOptions {
        alphabet: 5,
        separator: 4,
        threads: 1,
        ..BuildOptions::default()
    };
    let empty = || fs::read_dir(dir.path()).unwrap().next().is_none();
    let build = |tokens: &[Symbol], starts: &[u32], options: &BuildOptions| {
        build_segment(dir.path(), tokens.to_vec(), starts, options, &()).unwrap_err()
    };
    let symbol = build(&[1, 5, 4], &[0], &options);
    assert!(matches!(symbol, BuildError::Symbol { position: 1, .. }));
    assert!(matches!(
        build(&[1, 2], &[0], &options),
        BuildError::NotClosed { document: 0 }
    ));
    assert!(matches!(
        build(&[1, 4], &[1], &options),
        BuildError::DocumentStart { .. }
    ));
    assert!(matches!(
        build(&[1, 4], &[], &options),
        BuildError::DocumentStart { .. }
    ));
    assert!(matches!(
        build(&[1, 4], &[0, 3], &options),
        BuildError::DocumentStart { .. }
    ));
    assert!(matches!(
        build(&[1, 4, 1, 4], &[0, 2, 1], &options),
        BuildError::DocumentStart { .. } | BuildError::NotClosed { .. }
    ));
    let wide = BuildOptions {
        alphabet: (1 << 20) + 1,
        ..options.clone()
    };
    assert!(matches!(
        build(&[4], &[0], &wide),
        BuildError::Alphabet { .. }
    ));
    let poor = BuildOptions {
        memory: Some(1000),
        ..options.clone()
    };
    assert!(matches!(
        build(&[4], &[0], &poor),
        BuildError::Memory { .. }
    ));
    assert!(empty());
    let tokens: Vec<Symbol> = (0..20_000)
        .map(|i| if i % 10 == 9 { 4 } else { i % 4 })
        .collect();
    for stop in 0.. {
        let progress = StopAt(stop.into());
        match build_segment(dir.path(), tokens.clone(), &[0], &options, &progress) {
            Err(BuildError::Interrupted) => {
                assert!(Segment::open(dir.path()).is_err());
                let partial = fs::read_dir(dir.path()).unwrap();
                for entry in partial {
                    let name = entry.unwrap().file_name();
                    assert!(!name.to_string_lossy().ends_with(".partial"));
                }
            }
            done => {
                done.unwrap();
                break;
            }
        }
    }
    Segment::open(dir.path()).unwrap().verify().unwrap();
}
