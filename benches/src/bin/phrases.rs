//! Space and time of the index on a real corpus, as percentiles over phrases drawn from it.
//!
//! `VERBATIM_TOKENS=tokens.u32 cargo run --release -p benches --bin phrases [small|fast]…`; without a file of tokens,
//! on the summaries of the demo.
//!
//! `VERBATIM_ALPHABET=262144` spreads the token ids over a larger vocabulary, one to one;
//! `VERBATIM_BENCH_DIR` keeps the built segments in a folder and uses those that are there.

use std::time::Instant;

use benches::{Corpus, Times, busy_seconds, draw, load, peak_memory};
use bitvec::prelude::{BitVec, Lsb0};
use fmindex::{BuildOptions, DeadRows, DocumentIndex, Index, Profile, Segment, build_segment};

fn main() {
    let Some(mut corpus) = Corpus::at_hand("phrases") else {
        return;
    };
    if let Some(alphabet) = std::env::var("VERBATIM_ALPHABET")
        .ok()
        .and_then(|text| text.parse().ok())
    {
        corpus.spread(alphabet);
    }
    let names: Vec<String> = std::env::args().skip(1).collect();
    let profiles = if names.is_empty() {
        vec![Profile::Small, Profile::Fast]
    } else {
        let parse = |name: &String| name.parse().expect("a profile");
        names.iter().map(parse).collect()
    };
    for profile in profiles {
        println!("== profile {profile}; load {}", load());
        measure(&corpus, profile);
    }
}

fn measure(corpus: &Corpus, profile: Profile) {
    let kept = std::env::var_os("VERBATIM_BENCH_DIR").map(std::path::PathBuf::from);
    let temporary = tempfile::tempdir().expect("a folder");
    let dir = match kept {
        Some(dir) => dir.join(profile.to_string()),
        None => temporary.path().to_owned(),
    };
    if !dir.join("fm.bwt").exists() {
        std::fs::create_dir_all(&dir).expect("a folder");
        let options = BuildOptions {
            alphabet: corpus.separator + 1,
            separator: corpus.separator,
            profile,
            ..BuildOptions::default()
        };
        let tokens = corpus.tokens.clone();
        let report = build_segment(&dir, tokens, &corpus.starts, &options, &()).expect("a build");
        let million = report.tokens as f64 / 1e6;
        println!(
            "built {million:.1} M tokens in {:.1} s; sort {:.1} s, {:.1} M tokens/s; peak memory {:.1} bytes a token beside the harness's own tokens",
            report.seconds,
            report.sort_seconds,
            million / report.sort_seconds,
            peak_memory() as f64 / report.tokens as f64 - 4.0
        );
    }
    let begun = Instant::now();
    let segment = Segment::open(&dir).expect("the segment that was just built");
    println!("open {:.0} µs", begun.elapsed().as_secs_f64() * 1e6);
    assert_eq!(
        segment.tokens() as usize,
        corpus.tokens.len(),
        "{}: built of another corpus; delete it or name another folder",
        dir.display()
    );
    let mut total = 0.0;
    for part in segment.stat() {
        total += part.bits_per_token;
        println!(
            "  {:24} {:12} bytes {:7.3} bits a token",
            part.name, part.bytes, part.bits_per_token
        );
    }
    println!("  {:24} {total:32.3} bits a token", "all");
    segment.warm();
    let documents = segment.documents();
    let index = Index::new(vec![segment.clone()]).expect("one segment");
    index_times(&index, corpus);
    for percent in [1, 10] {
        let dead =
            (0..documents).filter(|document| document.wrapping_mul(2_654_435_761) % 100 < percent);
        let dead: Vec<u32> = dead.collect();
        let begun = Instant::now();
        let marked = DeadRows::mark(&segment, None, &dead).expect("documents of the segment");
        let marking = begun.elapsed().as_secs_f64();
        let path = temporary.path().join(format!("dead-{percent}"));
        marked.write(&path).expect("a file");
        let begun = Instant::now();
        let opened = DeadRows::open(&path, &segment).expect("the file that was just written");
        let deleted = Index::with_dead_rows(vec![segment.clone()], vec![Some(opened)]);
        let deleted = deleted.expect("rows of the segment");
        let opening = begun.elapsed().as_secs_f64() * 1e6;
        let begun = Instant::now();
        deleted.warm();
        let warming = begun.elapsed().as_secs_f64();
        println!(
            "-- {percent} % of documents deleted: marked in {marking:.2} s, opened in {opening:.0} µs, warmed in {warming:.2} s"
        );
        steps(&deleted, corpus);
        println!("-- the same without, beside it");
        steps(&index, corpus);
    }
}

fn index_times(index: &Index, corpus: &Corpus) {
    steps(index, corpus);
    walks(index, corpus);
}

fn steps(index: &Index, corpus: &Corpus) {
    let alphabet = index.alphabet() as usize;
    let mut mask: BitVec<u64, Lsb0> = BitVec::repeat(false, alphabet);
    let mut list = Vec::new();
    println!(
        "length |  extend p50/p99  |   + mask p50/p99  |   + list p50/p99  | rows p50  listed p50"
    );
    for length in [0, 1, 2, 3, 5, 8] {
        let phrases = corpus.phrases(length.max(1), 2000, 1 + length as u64);
        // Another set warms the caches that a running program would have warm.
        for phrase in corpus.phrases(length.max(1), 200, 99) {
            index.mask(&index.range(&phrase), &mut mask);
        }
        let mut times = [Times::default(), Times::default(), Times::default()];
        let (mut rows, mut listed) = (Vec::new(), Vec::new());
        for (what, times) in times.iter_mut().enumerate() {
            for phrase in &phrases {
                let (last, before) = phrase.split_last().expect("at least one token");
                let ranges = index.range(before);
                let extended = times.call(|| {
                    let extended = match length {
                        0 => index.full(),
                        _ => index.extend(&ranges, *last),
                    };
                    match what {
                        1 => index.mask(&extended, &mut mask),
                        2 => index.continuations(&extended, &mut list),
                        _ => {}
                    }
                    extended
                });
                rows.push(extended.len());
                listed.push(list.len());
            }
        }
        rows.sort_unstable();
        listed.drain(..4000);
        listed.sort_unstable();
        let [extend, masked, list] = &mut times;
        println!(
            "{length:6} | {} | {} | {} | {:8} {:8}",
            extend.shown(),
            masked.shown(),
            list.shown(),
            rows[rows.len() / 2],
            listed[listed.len() / 2]
        );
    }
}

fn walks(index: &Index, corpus: &Corpus) {
    let mut locate = Times::default();
    for phrase in corpus.phrases(3, 2000, 5) {
        let ranges = index.range(&phrase);
        let place = locate.call(|| index.locate(&ranges).next());
        assert!(place.is_some());
    }
    println!("locate one: {}", locate.shown());
    let segment = &index.segments()[0];
    for chains in [1, 16] {
        let mut state = 3;
        let begun = busy_seconds();
        let mut read = 0;
        for _ in 0..300 {
            let from = draw(&mut state, corpus.tokens.len() - 1000) as u32;
            let tokens = match chains {
                1 => segment.extract_in_one_chain(from..from + 1000),
                _ => segment.extract(from..from + 1000),
            };
            assert_eq!(tokens, &corpus.tokens[from as usize..from as usize + 1000]);
            read += tokens.len();
        }
        let rate = read as f64 / (busy_seconds() - begun) / 1e6;
        println!("extract, chains side by side {chains:2}: {rate:.2} M tokens/s");
    }
    let mut counts = Times::default();
    for phrase in corpus.phrases(2, 1000, 6) {
        let ranges = index.range(&phrase);
        if (500..=1500).contains(&ranges.len()) {
            counts.call(|| index.document_counts(&ranges, 1000));
        }
    }
    println!(
        "documents of 500 to 1,500 occurrences, cap 1,000: {} µs",
        counts.shown()
    );
    let (mut built, mut sorted) = (Times::default(), Times::default());
    let mut sizes = Vec::new();
    for document in 0..segment.documents() {
        let length = segment.document_span(document).len();
        if (900..1100).contains(&length) && sizes.len() < 300 {
            sizes.push(length);
            built.call(|| {
                segment
                    .document_index(document)
                    .expect("an undamaged segment")
            });
            let tokens = segment.extract(segment.document_span(document));
            sorted.call(|| DocumentIndex::build(&tokens, segment.separator()));
        }
    }
    println!(
        "index of a document of about 1,000 tokens, from the segment: {} µs, from its tokens: {} µs ({} documents)",
        built.shown(),
        sorted.shown(),
        sizes.len()
    );
}
