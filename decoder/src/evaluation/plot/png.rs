//! A drawing as PNG: marks drawn with soft edges at twice the size, words in strokes ([`glyphs`]).

use std::io::Write;

use super::drawing::{Anchor, Drawing, Mark};
use super::glyphs;

/// Pixels of the picture for one of the drawing.
const SCALE: f64 = 2.0;

struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Picture {
    /// Draws a stroke from `a` to `b` with round ends: a pixel is covered by how far it lies inside.
    fn stroke(&mut self, a: (f64, f64), b: (f64, f64), radius: f64, colour: [u8; 3]) {
        let reach = radius + 1.0;
        let bound = |value: f64, most: usize| (value.max(0.0) as usize).min(most);
        let columns =
            bound(a.0.min(b.0) - reach, self.width)..bound(a.0.max(b.0) + reach + 1.0, self.width);
        let rows = bound(a.1.min(b.1) - reach, self.height)
            ..bound(a.1.max(b.1) + reach + 1.0, self.height);
        let (dx, dy) = (b.0 - a.0, b.1 - a.1);
        let length = dx * dx + dy * dy;
        for row in rows {
            for column in columns.clone() {
                let (x, y) = (column as f64 + 0.5, row as f64 + 0.5);
                let along = if length > 0.0 {
                    (((x - a.0) * dx + (y - a.1) * dy) / length).clamp(0.0, 1.0)
                } else {
                    0.0
                };
                let distance = (x - a.0 - along * dx).hypot(y - a.1 - along * dy);
                let cover = (radius + 0.5 - distance).clamp(0.0, 1.0);
                let at = (row * self.width + column) * 3;
                for (pixel, ink) in self.pixels[at..at + 3].iter_mut().zip(colour) {
                    let mixed = f64::from(*pixel) * (1.0 - cover) + f64::from(ink) * cover;
                    *pixel = mixed.round() as u8;
                }
            }
        }
    }
}

/// The drawing as the bytes of a PNG file.
pub(super) fn write(drawing: &Drawing) -> Vec<u8> {
    let width = (drawing.size.0 * SCALE) as usize;
    let height = (drawing.size.1 * SCALE) as usize;
    let mut picture = Picture {
        width,
        height,
        pixels: vec![0xff; width * height * 3],
    };
    let scaled = |(x, y): (f64, f64)| (x * SCALE, y * SCALE);
    for mark in &drawing.marks {
        match mark {
            Mark::Line {
                points,
                colour,
                width,
            } => {
                for pair in points.windows(2) {
                    let radius = width * SCALE / 2.0;
                    picture.stroke(scaled(pair[0]), scaled(pair[1]), radius, *colour);
                }
            }
            Mark::Dot { at, radius, colour } => {
                picture.stroke(scaled(*at), scaled(*at), radius * SCALE, *colour);
            }
            Mark::Text {
                at,
                text,
                anchor,
                size,
                colour,
            } => {
                let size = size * SCALE;
                let width = glyphs::width(text, size);
                let (x, y) = scaled(*at);
                let start = match anchor {
                    Anchor::Start => x,
                    Anchor::Middle => x - width / 2.0,
                    Anchor::End => x - width,
                };
                for (a, b) in glyphs::strokes(text, (start, y), size) {
                    picture.stroke(a, b, size / 22.0, *colour);
                }
            }
        }
    }
    encode(&picture)
}

fn encode(picture: &Picture) -> Vec<u8> {
    let mut png = b"\x89PNG\r\n\x1a\n".to_vec();
    let mut header = Vec::new();
    header.extend((picture.width as u32).to_be_bytes());
    header.extend((picture.height as u32).to_be_bytes());
    // 8 bits a channel, red green blue, no interlacing.
    header.extend([8, 2, 0, 0, 0]);
    chunk(&mut png, b"IHDR", &header);
    let mut rows = Vec::with_capacity(picture.pixels.len() + picture.height);
    for row in picture.pixels.chunks_exact(picture.width * 3) {
        // No filter.
        rows.push(0);
        rows.extend(row);
    }
    let mut deflate = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    // Writing to memory cannot fail.
    let data = deflate.write_all(&rows).and_then(|()| deflate.finish());
    chunk(&mut png, b"IDAT", &data.unwrap_or_default());
    chunk(&mut png, b"IEND", &[]);
    png
}

fn chunk(png: &mut Vec<u8>, kind: &[u8; 4], data: &[u8]) {
    png.extend((data.len() as u32).to_be_bytes());
    let from = png.len();
    png.extend(kind);
    png.extend(data);
    let mut sum = flate2::Crc::new();
    sum.update(&png[from..]);
    png.extend(sum.sum().to_be_bytes());
}

#[cfg(test)]
pub(super) mod tests {
    use std::io::Read;

    /// The pixels and the width of a PNG that [`super::write`] made, its checksums compared.
    pub fn read(png: &[u8]) -> (Vec<u8>, usize) {
        let (mut at, mut width, mut data) = (8, 0, Vec::new());
        while at < png.len() {
            let number =
                |at: usize| u32::from_be_bytes(png[at..at + 4].try_into().unwrap()) as usize;
            let length = number(at);
            let body = &png[at + 4..at + 8 + length];
            let mut sum = flate2::Crc::new();
            sum.update(body);
            assert_eq!(sum.sum() as usize, number(at + 8 + length));
            match &body[..4] {
                b"IHDR" => width = number(at + 8),
                b"IDAT" => data.extend(&body[4..]),
                _ => {}
            }
            at += 12 + length;
        }
        let mut rows = Vec::new();
        flate2::read::ZlibDecoder::new(&data[..])
            .read_to_end(&mut rows)
            .unwrap();
        let pixels = rows
            .chunks_exact(width * 3 + 1)
            .flat_map(|row| row[1..].to_vec());
        (pixels.collect(), width)
    }
}
