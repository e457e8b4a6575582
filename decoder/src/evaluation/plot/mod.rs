//! Charts of an evaluation: quality against latency, against the number of texts, and against their length.
//!
//! A chart is laid out once as a `Drawing` of lines, dots and words, and written as SVG and as PNG.

mod drawing;
mod glyphs;
mod png;
mod svg;

use std::path::PathBuf;

use super::EvaluationError;
use super::folder::Folder;
use super::summary::{Judged, judged};
use drawing::{Anchor, Drawing};

/// What a chart shows.
#[derive(Debug, Clone, PartialEq)]
pub struct Chart {
    /// Its name in a file name.
    pub name: String,
    /// Its heading.
    pub title: String,
    /// What goes to the right.
    pub x: Axis,
    /// What goes up.
    pub y: Axis,
    /// One line or dot a method.
    pub series: Vec<Series>,
}

/// An axis.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Axis {
    /// What it measures.
    pub label: String,
    /// Whether steps multiply instead of add.
    pub logarithmic: bool,
}

/// The points of one method, from left to right.
#[derive(Debug, Clone, PartialEq)]
pub struct Series {
    /// The method.
    pub name: String,
    /// Its points.
    pub points: Vec<(f64, f64)>,
}

/// Writes the charts of an evaluation as SVG and PNG into its folder `plots`; returns what was written.
///
/// # Errors
/// There is no evaluation in the folder, or it cannot be written.
pub fn write(folder: &Folder) -> Result<Vec<PathBuf>, EvaluationError> {
    let mut plan = folder.begun_plan()?;
    let depth = plan.top_k.iter().copied().max().unwrap_or(1);
    plan.top_k = (1..=depth).collect();
    let dir = folder.path().join("plots");
    std::fs::create_dir_all(&dir)
        .map_err(|source| EvaluationError::io(&dir, "create the folder", source))?;
    let mut written = Vec::new();
    for set in &plan.sets {
        for chart in charts(&set.name, &judged(folder, set, &plan)?, depth) {
            let drawing = layout(&chart);
            for (ending, bytes) in [
                ("svg", svg::write(&drawing).into_bytes()),
                ("png", png::write(&drawing)),
            ] {
                let name = format!("plots/{}.{ending}", chart.name);
                folder.write(&name, &bytes)?;
                written.push(folder.path().join(name));
            }
        }
    }
    Ok(written)
}

/// The charts of a set; one without points is left out.
fn charts(name: &str, methods: &[Judged], depth: usize) -> Vec<Chart> {
    let axis = |label: &str, logarithmic| Axis {
        label: label.to_owned(),
        logarithmic,
    };
    let series = |points: &dyn Fn(&Judged) -> Vec<(f64, f64)>| -> Vec<Series> {
        methods
            .iter()
            .map(|method| Series {
                name: method.name.clone(),
                points: points(method),
            })
            .filter(|series| !series.points.is_empty())
            .collect()
    };
    // Sets without answers are judged by their labels.
    let judged = |metric: &str| {
        let metric = format!("{metric}@{depth}");
        methods.iter().any(|method| method.mean(&metric).is_some())
    };
    let metric = if judged("has_answer") {
        "has_answer"
    } else {
        "gold_recall"
    };
    let at_latency = |metric: String| {
        series(&|method| {
            let found = method.mean(&metric);
            found
                .map(|found| (method.cost.p50_ms.max(0.1), found))
                .into_iter()
                .collect()
        })
    };
    let by_rank = |x: &dyn Fn(&Judged, usize) -> f64| {
        series(&|method| {
            (1..=depth)
                .filter_map(|k| Some((x(method, k), method.mean(&format!("{metric}@{k}"))?)))
                .collect()
        })
    };
    let chart = |kind: &str, title: String, x: Axis, y: Axis, series: Vec<Series>| Chart {
        name: format!("{name}.{kind}"),
        title,
        x,
        y,
        series,
    };
    let milliseconds = || axis("milliseconds a question (median)", true);
    let mut charts = vec![
        chart(
            "latency",
            format!("{name}: retrieval against latency"),
            milliseconds(),
            axis(&format!("{metric} R@{depth}"), false),
            at_latency(format!("{metric}@{depth}")),
        ),
        chart(
            "texts",
            format!("{name}: retrieval against the number of texts"),
            axis("texts (passages, or pieces of evidence)", false),
            axis(&format!("{metric} R@k"), false),
            by_rank(&|_, k| k as f64),
        ),
        chart(
            "tokens",
            format!("{name}: retrieval against the tokens read"),
            axis("tokens of the first k texts (mean)", true),
            axis(&format!("{metric} R@k"), false),
            by_rank(&|method, k| (k as f64 * method.cost.tokens_per_text).max(1.0)),
        ),
        chart(
            "answers",
            format!("{name}: answers against latency"),
            milliseconds(),
            axis("F1", false),
            at_latency("f1".to_owned()),
        ),
    ];
    charts.retain(|chart| !chart.series.is_empty());
    charts
}

/// Width and height of a chart, and the borders of its plane, in pixels.
const SIZE: (f64, f64) = (760.0, 440.0);
const PLANE: [f64; 4] = [70.0, 540.0, 50.0, 380.0];
const INK: [u8; 3] = [0x30, 0x30, 0x30];
const GRID: [u8; 3] = [0xdd, 0xdd, 0xdd];
/// Colours that are told apart by most people (Okabe and Ito 2008).
const COLOURS: [[u8; 3]; 8] = [
    [0xd5, 0x5e, 0x00],
    [0x00, 0x72, 0xb2],
    [0x00, 0x9e, 0x73],
    [0xcc, 0x79, 0xa7],
    [0xe6, 0x9f, 0x00],
    [0x56, 0xb4, 0xe9],
    [0x80, 0x80, 0x80],
    [0x00, 0x00, 0x00],
];

fn layout(chart: &Chart) -> Drawing {
    let [left, right, top, bottom] = PLANE;
    let mut drawing = Drawing::new(SIZE);
    let points = || chart.series.iter().flat_map(|series| &series.points);
    let x = Scale::of(
        points().map(|point| point.0),
        chart.x.logarithmic,
        left,
        right,
    );
    // Shares: the plane always begins at 0, so that heights can be compared.
    let highest = points().map(|point| point.1).fold(0.1, f64::max);
    let y = Scale::of([0.0, highest].into_iter(), false, bottom, top);
    for &tick in &x.ticks {
        let at = x.place(tick);
        drawing.line(vec![(at, top), (at, bottom)], GRID, 1.0);
        drawing.text((at, bottom + 18.0), &short(tick), Anchor::Middle, 12.0, INK);
    }
    for &tick in &y.ticks {
        let at = y.place(tick);
        drawing.line(vec![(left, at), (right, at)], GRID, 1.0);
        drawing.text((left - 8.0, at + 4.0), &short(tick), Anchor::End, 12.0, INK);
    }
    drawing.line(vec![(left, top), (left, bottom), (right, bottom)], INK, 1.5);
    drawing.text((left, 24.0), &chart.title, Anchor::Start, 15.0, INK);
    drawing.text((left, 42.0), &chart.y.label, Anchor::Start, 12.0, INK);
    let middle = (left + right) / 2.0;
    drawing.text(
        (middle, bottom + 42.0),
        &chart.x.label,
        Anchor::Middle,
        12.0,
        INK,
    );
    for (number, series) in chart.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let places: Vec<(f64, f64)> = series
            .points
            .iter()
            .map(|&(right, up)| (x.place(right), y.place(up)))
            .collect();
        if places.len() > 1 {
            drawing.line(places.clone(), colour, 2.0);
        }
        for place in places {
            drawing.dot(place, 4.0, colour);
        }
        let row = top + 18.0 * number as f64;
        drawing.dot((right + 22.0, row), 4.0, colour);
        drawing.text(
            (right + 34.0, row + 4.0),
            &series.name,
            Anchor::Start,
            12.0,
            INK,
        );
    }
    drawing
}

/// Where the numbers of an axis stand.
struct Scale {
    logarithmic: bool,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
    ticks: Vec<f64>,
}

impl Scale {
    fn of(values: impl Iterator<Item = f64>, logarithmic: bool, from: f64, to: f64) -> Self {
        let (mut low, mut high) = values
            .filter(|value| value.is_finite())
            .fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), value| {
                (low.min(value), high.max(value))
            });
        if low > high {
            (low, high) = (0.0, 1.0);
        }
        let ticks: Vec<f64>;
        if logarithmic {
            // Whole decades around the values, with 1, 2, 5 of each.
            let decades =
                low.max(1e-3).log10().floor() as i32..=high.max(1e-3).log10().ceil() as i32;
            let all: Vec<f64> = decades
                .flat_map(|decade| [1.0, 2.0, 5.0].map(|step| step * 10f64.powi(decade)))
                .collect();
            low = all
                .iter()
                .copied()
                .rfind(|tick| *tick <= low)
                .unwrap_or(low);
            high = all
                .iter()
                .copied()
                .find(|tick| *tick >= high && *tick > low)
                .unwrap_or(high);
            ticks = all
                .into_iter()
                .filter(|tick| (low..=high).contains(tick))
                .collect();
        } else {
            let span = if high > low {
                high - low
            } else {
                high.abs().max(1.0)
            };
            let rough = span / 5.0;
            let unit = 10f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0]
                .map(|factor| factor * unit)
                .into_iter()
                .find(|step| *step >= rough)
                .unwrap_or(rough);
            low = (low / step).floor() * step;
            high = ((high / step).ceil() * step).max(low + step);
            let count = ((high - low) / step).round() as usize;
            ticks = (0..=count)
                .map(|number| low + step * number as f64)
                .collect();
        }
        Self {
            logarithmic,
            low,
            high,
            from,
            to,
            ticks,
        }
    }

    fn place(&self, value: f64) -> f64 {
        let share = if self.logarithmic && self.high > self.low {
            (value / self.low).ln() / (self.high / self.low).ln()
        } else {
            (value - self.low) / (self.high - self.low).max(f64::MIN_POSITIVE)
        };
        self.from + share.clamp(0.0, 1.0) * (self.to - self.from)
    }
}

/// A number as an axis shows it.
fn short(value: f64) -> String {
    let rounded = (value * 1e6).round() / 1e6;
    if rounded >= 1000.0 && rounded % 1000.0 == 0.0 {
        format!("{}k", rounded / 1000.0)
    } else {
        rounded.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chart() -> Chart {
        Chart {
            name: "nq.latency".into(),
            title: "nq <&> \"latency\"".into(),
            x: Axis {
                label: "ms".into(),
                logarithmic: true,
            },
            y: Axis {
                label: "R@5".into(),
                logarithmic: false,
            },
            series: vec![
                Series {
                    name: "engine:no-clues+evidence.most=3".into(),
                    points: vec![(2000.0, 0.8)],
                },
                Series {
                    name: "bm25".into(),
                    points: vec![(0.1, 0.0), (3.0, 0.5), (7.0, 1.0)],
                },
            ],
        }
    }

    #[test]
    fn scales_hold_their_values() {
        for logarithmic in [false, true] {
            for values in [
                vec![],
                vec![1.0],
                vec![0.1, 2500.0],
                vec![3.0, 3.0],
                vec![1.0, 5.0],
                vec![f64::NAN, 2.0],
            ] {
                let scale = Scale::of(values.iter().copied(), logarithmic, 10.0, 110.0);
                assert!(
                    scale.ticks.len() >= 2 || values.len() == 1,
                    "{values:?}: {:?}",
                    scale.ticks
                );
                assert!(scale.ticks.len() < 20, "{values:?}: {:?}", scale.ticks);
                for value in values.into_iter().filter(|value| value.is_finite()) {
                    assert!(scale.low <= value && value <= scale.high * 1.000001);
                    assert!((10.0..=110.0).contains(&scale.place(value)));
                }
            }
        }
    }

    #[test]
    fn both_forms_are_whole() {
        let drawing = layout(&chart());
        let svg = svg::write(&drawing);
        assert!(svg.starts_with("<svg ") && svg.trim_end().ends_with("</svg>"));
        assert!(
            svg.contains("nq &lt;&amp;&gt; &quot;latency&quot;"),
            "{svg}"
        );
        assert_eq!(svg.matches("<circle").count(), 6);
        let png = png::write(&drawing);
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n"));
        let (pixels, width) = png::tests::read(&png);
        assert_eq!((pixels.len() / 3, width), (2 * 760 * 2 * 440, 2 * 760));
        let coloured = |colour: [u8; 3]| pixels.chunks(3).filter(|pixel| *pixel == colour).count();
        assert!(coloured(COLOURS[0]) > 50 && coloured(COLOURS[1]) > 50 && coloured(INK) > 200);
        assert!(coloured([0xff; 3]) > pixels.len() / 6);
    }
}
