//! A drawing as SVG.

use std::fmt::Write as _;

use super::drawing::{Anchor, Drawing, Mark};

/// The drawing as the text of an SVG file.
pub(super) fn write(drawing: &Drawing) -> String {
    let (width, height) = drawing.size;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\">\n<rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n"
    );
    for mark in &drawing.marks {
        let _ = match mark {
            Mark::Line {
                points,
                colour,
                width,
            } => {
                let points: Vec<String> = points
                    .iter()
                    .map(|(x, y)| format!("{x:.1},{y:.1}"))
                    .collect();
                writeln!(
                    svg,
                    "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"{width}\"/>",
                    points.join(" "),
                    hex(*colour)
                )
            }
            Mark::Dot { at, radius, colour } => writeln!(
                svg,
                "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"{radius}\" fill=\"{}\"/>",
                at.0,
                at.1,
                hex(*colour)
            ),
            Mark::Text {
                at,
                text,
                anchor,
                size,
                colour,
            } => {
                let anchor = match anchor {
                    Anchor::Start => "start",
                    Anchor::Middle => "middle",
                    Anchor::End => "end",
                };
                writeln!(
                    svg,
                    "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"{size}\" text-anchor=\"{anchor}\" fill=\"{}\">{}</text>",
                    at.0,
                    at.1,
                    hex(*colour),
                    escaped(text)
                )
            }
        };
    }
    svg.push_str("</svg>\n");
    svg
}

fn hex([red, green, blue]: [u8; 3]) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

/// Text as XML holds it; characters that it cannot hold are left out.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            c if c.is_control() || ('\u{fffe}'..='\u{ffff}').contains(&c) => {}
            c => escaped.push(c),
        }
    }
    escaped
}
