//! Times the sentence encoder: `embed FOLDER [WINDOWS] [WORDS]`, milliseconds and tokens a second.

use std::time::Instant;

use models::encoder::SentenceEncoder;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = arguments.next().ok_or("give the encoder's folder")?;
    let windows = arguments.next().map_or(Ok(32), |count| count.parse())?;
    let words = arguments
        .next()
        .map_or(Ok(80), |count| count.parse::<usize>())?;
    let start = Instant::now();
    let encoder = SentenceEncoder::open(folder)?;
    println!("opened in {} ms", start.elapsed().as_millis());
    let text = "The treaty was signed at the palace by the heads of state and came into force a year later. ";
    let texts: Vec<String> = (0..windows)
        .map(|at: usize| {
            // Lengths differ by up to a fifth, as windows of real texts do.
            let count = words - words * (at % 8) / 40;
            text.split(' ')
                .cycle()
                .skip(at)
                .take(count)
                .collect::<Vec<_>>()
                .join(" ")
        })
        .collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut times: Vec<f64> = Vec::new();
    for _ in 0..9 {
        let start = Instant::now();
        encoder.embed(&texts)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    println!(
        "{windows} windows: best {:.0} ms, median {:.0} ms",
        times[0],
        times[times.len() / 2]
    );
    Ok(())
}
