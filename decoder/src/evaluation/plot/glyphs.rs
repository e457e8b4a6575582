//! Letters drawn in strokes, so that a picture needs no font. Small letters are small capitals.
//!
//! A glyph is a few polylines on a grid 4 wide and 6 high: `xy` for a point, y from the top, `|` between lines.

/// Width of a glyph with the gap after it, in grid units.
const ADVANCE: f64 = 5.6;
/// Size of small letters.
const SMALL: f64 = 0.8;

fn glyph(c: char) -> &'static str {
    match c {
        'A' => "06 20 46|14 34",
        'B' => "03 00 30 41 42 33 03 06 36 45 44 33",
        'C' => "41 30 10 01 05 16 36 45",
        'D' => "00 06 26 44 42 20 00",
        'E' => "40 00 06 46|03 33",
        'F' => "40 00 06|03 33",
        'G' => "41 30 10 01 05 16 36 45 43 23",
        'H' => "00 06|40 46|03 43",
        'I' => "10 30|20 26|16 36",
        'J' => "40 45 36 16 05",
        'K' => "00 06|40 03 46",
        'L' => "00 06 46",
        'M' => "06 00 23 40 46",
        'N' => "06 00 46 40",
        'O' => "10 30 41 45 36 16 05 01 10",
        'P' => "06 00 30 41 42 33 03",
        'Q' => "10 30 41 45 36 16 05 01 10|34 46",
        'R' => "06 00 30 41 42 33 03|23 46",
        'S' => "41 30 10 01 02 13 33 44 45 36 16 05",
        'T' => "00 40|20 26",
        'U' => "00 05 16 36 45 40",
        'V' => "00 26 40",
        'W' => "00 16 23 36 40",
        'X' => "00 46|40 06",
        'Y' => "00 23 40|23 26",
        'Z' => "00 40 06 46",
        '0' => "10 30 41 45 36 16 05 01 10",
        '1' => "11 20 26|16 36",
        '2' => "01 10 30 41 42 06 46",
        '3' => "00 40 23 33 44 45 36 16 05",
        '4' => "36 30 04 44",
        '5' => "40 00 03 33 44 45 36 16 05",
        '6' => "40 20 02 05 16 36 45 44 33 03",
        '7' => "00 40 16",
        '8' => "13 02 01 10 30 41 42 33 13 04 05 16 36 45 44 33",
        '9' => "06 26 44 41 30 10 01 02 13 43",
        '.' => "26 26",
        ',' => "25 16",
        ':' => "22 22|25 25",
        ';' => "22 22|25 16",
        '-' | '–' | '−' => "13 33",
        '+' => "13 33|22 24",
        '=' => "12 32|14 34",
        '_' => "06 46",
        '/' => "06 40",
        '\\' => "00 46",
        '|' => "20 26",
        '(' | '[' => "30 11 15 36",
        ')' | ']' => "10 31 35 16",
        '<' => "41 03 45",
        '>' => "01 43 05",
        '@' => "34 24 22 32 35 45 41 30 10 01 05 16 36",
        '%' => "06 40|01 10|36 45",
        '~' => "03 12 33 42",
        '!' => "20 24|26 26",
        '?' => "01 10 30 41 23 24|26 26",
        '&' => "46 11 10 30 31 04 05 16 26 44",
        '#' => "10 06|30 26|02 42|04 44",
        '\'' => "20 21",
        '"' => "10 11|30 31",
        ' ' => "",
        // What has no strokes is a box.
        _ => "00 40 46 06 00",
    }
}

/// The capital that stands for `c`, and its size.
fn capital(c: char) -> (char, f64) {
    if c.is_ascii_lowercase() {
        (c.to_ascii_uppercase(), SMALL)
    } else {
        (c, 1.0)
    }
}

/// The grid unit at a font size: capitals are 0.7 of it high.
fn unit(size: f64) -> f64 {
    size * 0.7 / 6.0
}

/// Width of a text at this font size.
pub(super) fn width(text: &str, size: f64) -> f64 {
    let units: f64 = text.chars().map(|c| capital(c).1 * ADVANCE).sum();
    units * unit(size)
}

/// The strokes of a text whose base line begins at `at`.
pub(super) fn strokes(text: &str, at: (f64, f64), size: f64) -> Vec<((f64, f64), (f64, f64))> {
    let mut strokes = Vec::new();
    let mut left = at.0;
    for c in text.chars() {
        let (c, small) = capital(c);
        let unit = unit(size) * small;
        for line in glyph(c).split('|') {
            let points: Vec<(f64, f64)> = line
                .split(' ')
                .filter_map(|point| match point.as_bytes() {
                    [x, y] => {
                        let grid = |digit: &u8| f64::from(digit - b'0') * unit;
                        Some((left + grid(x), at.1 - 6.0 * unit + grid(y)))
                    }
                    _ => None,
                })
                .collect();
            strokes.extend(points.windows(2).map(|pair| (pair[0], pair[1])));
        }
        left += ADVANCE * unit;
    }
    strokes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_visible_character_has_strokes_on_the_grid() {
        for c in ('!'..='~').chain(['–', 'é', '東']) {
            let (capital, _) = capital(c);
            let lines = glyph(capital);
            assert!(!lines.is_empty(), "{c}");
            for point in lines.split(['|', ' ']) {
                let digits: Vec<u32> = point.chars().filter_map(|d| d.to_digit(10)).collect();
                assert!(matches!(digits[..], [0..=4, 0..=6]), "{c}: {point:?}");
            }
            let text = c.to_string();
            let end = width(&text, 12.0);
            for ((x, y), _) in strokes(&text, (0.0, 0.0), 12.0) {
                assert!(x <= end && (-12.0..=0.01).contains(&y), "{c}");
            }
        }
        assert!(strokes(" ", (0.0, 0.0), 12.0).is_empty());
    }
}
