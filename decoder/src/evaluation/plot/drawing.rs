//! Lines, dots and words on a white page, in pixels from its upper left corner.

/// Which part of a text stands at its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// One thing that is drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Mark {
    Line {
        points: Vec<(f64, f64)>,
        colour: [u8; 3],
        width: f64,
    },
    Dot {
        at: (f64, f64),
        radius: f64,
        colour: [u8; 3],
    },
    Text {
        at: (f64, f64),
        text: String,
        anchor: Anchor,
        size: f64,
        colour: [u8; 3],
    },
}

/// A page of marks; later ones lie on top.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Drawing {
    pub size: (f64, f64),
    pub marks: Vec<Mark>,
}

impl Drawing {
    pub fn new(size: (f64, f64)) -> Self {
        Self {
            size,
            marks: Vec::new(),
        }
    }

    pub fn line(&mut self, points: Vec<(f64, f64)>, colour: [u8; 3], width: f64) {
        self.marks.push(Mark::Line {
            points,
            colour,
            width,
        });
    }

    pub fn dot(&mut self, at: (f64, f64), radius: f64, colour: [u8; 3]) {
        self.marks.push(Mark::Dot { at, radius, colour });
    }

    pub fn text(&mut self, at: (f64, f64), text: &str, anchor: Anchor, size: f64, colour: [u8; 3]) {
        self.marks.push(Mark::Text {
            at,
            text: text.to_owned(),
            anchor,
            size,
            colour,
        });
    }
}
