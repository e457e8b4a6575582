//! UTF-16 as UTF-8, on the fly.

use std::io::{self, Read};

/// The order of the bytes of a code unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    Little,
    Big,
}

/// The order of a text in UTF-16, told by its first bytes: a byte order mark, or a sign of ASCII and a zero.
pub(super) fn order(head: &[u8]) -> Option<Order> {
    match head {
        // Four bytes with two zeros after the mark would be UTF-32.
        [0xFF, 0xFE, rest @ ..] if !rest.starts_with(&[0, 0]) => Some(Order::Little),
        [0xFE, 0xFF, ..] => Some(Order::Big),
        [b'<' | b'{', 0, other, 0, ..] if *other != 0 => Some(Order::Little),
        [0, b'<' | b'{', 0, other, ..] if *other != 0 => Some(Order::Big),
        _ => None,
    }
}

/// Reads UTF-16 and gives UTF-8. A surrogate without its other half becomes a byte that no UTF-8 has, so
/// that what holds it is reported like any other damaged text.
pub(super) struct Utf16<R> {
    inner: R,
    order: Order,
    raw: Vec<u8>,
    ready: Vec<u8>,
    given: usize,
    /// The first half of a pair.
    high: Option<u16>,
    odd: Option<u8>,
    ended: bool,
}

const NOT_UTF8: u8 = 0xFF;

impl<R: Read> Utf16<R> {
    pub fn new(inner: R, order: Order) -> Self {
        Self {
            inner,
            order,
            raw: vec![0; 1 << 16],
            ready: Vec::new(),
            given: 0,
            high: None,
            odd: None,
            ended: false,
        }
    }

    fn unit(&mut self, unit: u16) {
        if let Some(high) = self.high.take() {
            if let Some(Ok(c)) = char::decode_utf16([high, unit]).next() {
                self.ready
                    .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
                return;
            }
            self.ready.push(NOT_UTF8);
        }
        match char::from_u32(unit.into()) {
            Some(c) => self
                .ready
                .extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            None if unit < 0xDC00 => self.high = Some(unit),
            None => self.ready.push(NOT_UTF8),
        }
    }
}

impl<R: Read> Read for Utf16<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.given == self.ready.len() {
            if self.ended {
                return Ok(0);
            }
            self.ready.clear();
            self.given = 0;
            let read = self.inner.read(&mut self.raw)?;
            let bytes = std::mem::take(&mut self.raw);
            for &byte in &bytes[..read] {
                let Some(first) = self.odd.take() else {
                    self.odd = Some(byte);
                    continue;
                };
                self.unit(match self.order {
                    Order::Little => u16::from_le_bytes([first, byte]),
                    Order::Big => u16::from_be_bytes([first, byte]),
                });
            }
            self.raw = bytes;
            if read == 0 {
                self.ended = true;
                if self.high.take().is_some() || self.odd.take().is_some() {
                    self.ready.push(NOT_UTF8);
                }
            }
        }
        let count = buffer.len().min(self.ready.len() - self.given);
        buffer[..count].copy_from_slice(&self.ready[self.given..self.given + count]);
        self.given += count;
        Ok(count)
    }
}
