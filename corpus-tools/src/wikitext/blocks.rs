//! Lines into paragraphs: headings, lists, tables, and what a reader sees as one paragraph.

use super::finish::{finish, without_quotes};
use super::marks::{BREAK, CAPTION, CAPTION_END, CELL, DROPPED};

/// Lines of a cell that are longer together are paragraphs, not a part of their row.
const LONG_CELL: usize = 200;

/// The paragraphs of a page, one a line.
pub(super) fn paragraphs(text: &str) -> String {
    let mut page = Page::default();
    for line in text.split('\n') {
        page.line(line);
    }
    page.close();
    page.out
}

/// A table, as far as it was read.
#[derive(Default)]
struct Table {
    /// The cells of the row, each with the lines it has.
    row: Vec<String>,
    /// Within the attributes of the table or of a row: no cell was begun.
    outside: bool,
    /// Rows written in HTML stand in it.
    html: bool,
}

#[derive(Default)]
struct Page {
    out: String,
    /// Headings under which nothing stands yet, with their levels.
    headings: Vec<(usize, String)>,
    /// The paragraph that is being read, without its quote marks.
    paragraph: String,
    tables: Vec<Table>,
}

impl Page {
    fn line(&mut self, line: &str) {
        // A template that left nothing may stand in front of what opens a line.
        let start = line.trim_start_matches([' ', '\t', DROPPED]);
        let indented = start.trim_start_matches([':', '*', '#', ' ']);
        if indented.starts_with("{|") {
            self.flush();
            self.tables.push(Table {
                outside: true,
                ..Table::default()
            });
            return;
        }
        if !self.tables.is_empty() {
            return self.table_line(start);
        }
        if let Some((level, heading)) = heading(line) {
            self.flush();
            self.headings.retain(|(other, _)| *other < level);
            self.headings.push((level, heading));
            return;
        }
        if start.is_empty() || start.starts_with("|") || start.starts_with("}}") {
            // Blank, or left over from a table or template that was never opened.
            return self.flush();
        }
        let rule = start.starts_with("----");
        let item = start.starts_with(['*', '#', ':', ';']);
        if rule || item || line.starts_with(' ') {
            self.flush();
        }
        let text = match (rule, item) {
            (true, _) => start.trim_start_matches('-'),
            (_, true) => start.trim_start_matches(|c: char| "*#:; ".contains(c) || c == DROPPED),
            _ => line,
        };
        if !self.paragraph.is_empty() {
            self.paragraph.push(' ');
        }
        self.paragraph.push_str(&without_quotes(text));
        // Long texts without blank lines are lists of something, line by line.
        if rule || item || line.starts_with(' ') {
            self.flush();
        }
    }

    /// Ends the paragraph.
    fn flush(&mut self) {
        let paragraph = std::mem::take(&mut self.paragraph);
        self.emit(&paragraph);
    }

    /// Writes lines of text, captions in front of the text they stand in.
    fn emit(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        if text.contains(CAPTION) {
            let mut rest = String::with_capacity(text.len());
            let mut depth = 0;
            let mut caption = String::new();
            for c in text.chars() {
                match c {
                    CAPTION => depth += 1,
                    CAPTION_END if depth > 0 => {
                        depth -= 1;
                        caption.push(BREAK);
                    }
                    CAPTION_END => {}
                    c if depth > 0 => caption.push(c),
                    c => rest.push(c),
                }
                if c == CAPTION {
                    rest.push(DROPPED);
                }
            }
            self.emit(&caption);
            return self.emit(&rest);
        }
        for part in text.split(BREAK) {
            let line = finish(part);
            if line.is_empty() {
                continue;
            }
            for (_, heading) in self.headings.drain(..) {
                if heading.is_empty() {
                    continue;
                }
                self.out.push_str(&heading);
                self.out.push('\n');
            }
            self.out.push_str(&line);
            self.out.push('\n');
        }
    }

    fn table_line(&mut self, line: &str) {
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        if let Some(rest) = line.strip_prefix("|}") {
            self.end_row();
            self.tables.pop();
            // Only text may follow on the line of the end.
            if !rest.trim().is_empty() && self.tables.is_empty() {
                self.line(rest);
            }
        } else if line.starts_with("|-") {
            table.outside = true;
            self.end_row();
        } else if let Some(caption) = line.strip_prefix("|+") {
            table.outside = false;
            table.row.push(String::new());
            add(table, cell_text(caption));
            self.end_row();
        } else if line.starts_with(['|', '!']) {
            table.outside = false;
            let header = line.starts_with('!');
            for cell in cells(&line[1..], header) {
                table.row.push(String::new());
                add(table, cell_text(cell));
            }
        } else if table.outside && (table.html || line.contains([BREAK, CELL])) {
            table.html = true;
            let item = line.trim_start_matches(['*', '#', ':', ';', ' ']);
            self.emit(&without_quotes(item));
        } else if !table.outside {
            if table.row.is_empty() {
                table.row.push(String::new());
            }
            let item = line.trim_start_matches(['*', '#', ':', ';', ' ']);
            let text = match heading(line) {
                Some((_, heading)) => heading,
                None => item.to_owned(),
            };
            if let Some(cell) = table.row.last_mut()
                && !cell.is_empty()
            {
                cell.push('\n');
            }
            add(table, &text);
        }
    }

    /// Writes a row: its cells on one line; long cells as paragraphs.
    fn end_row(&mut self) {
        let Some(table) = self.tables.last_mut() else {
            return;
        };
        let row = std::mem::take(&mut table.row);
        let mut line = String::new();
        let mut long = Vec::new();
        for cell in row {
            if cell.len() > LONG_CELL && cell.contains('\n') {
                long.push(cell);
                continue;
            }
            let cell = cell.replace([BREAK, '\n'], " ");
            // Finished once to see whether there is anything, and the whole line once more below.
            if finish(&cell).is_empty() {
                continue;
            }
            if !line.is_empty() {
                line.push_str("; ");
            }
            line.push_str(cell.trim());
        }
        self.emit(&line);
        for cell in long {
            for part in cell.split('\n') {
                self.emit(part);
            }
        }
    }

    fn close(&mut self) {
        self.flush();
        while !self.tables.is_empty() {
            self.end_row();
            self.tables.pop();
        }
        if self.out.ends_with('\n') {
            self.out.pop();
        }
    }
}

fn add(table: &mut Table, text: &str) {
    if let Some(cell) = table.row.last_mut() {
        cell.push_str(&without_quotes(text));
    }
}

/// Parts a line of cells at `||`; a line of header cells at `!!` too.
fn cells(line: &str, header: bool) -> Vec<&str> {
    let bytes = line.as_bytes();
    let mut cells = Vec::new();
    let (mut start, mut at) = (0, 0);
    while at + 1 < bytes.len() {
        let pair = &bytes[at..at + 2];
        if pair == b"||" || header && pair == b"!!" {
            cells.push(&line[start..at]);
            at += 2;
            start = at;
        } else {
            at += 1;
        }
    }
    cells.push(&line[start..]);
    cells
}

/// A cell without the attributes in front of its bar.
fn cell_text(cell: &str) -> &str {
    match cell.split_once('|') {
        Some((_, text)) => text.trim(),
        None if only_attributes(cell) => "",
        None => cell.trim(),
    }
}

/// Whether a cell holds attributes and nothing else: a template that was left out wrote the rest.
fn only_attributes(cell: &str) -> bool {
    const NAMES: [&str; 10] = [
        "colspan", "rowspan", "style", "align", "class", "bgcolor", "valign", "width", "scope",
        "nowrap",
    ];
    let cell = cell.trim_matches(|c: char| c == DROPPED || c.is_whitespace());
    let mut quoted = false;
    // Blanks within quotes belong to a value.
    let mut attributes = cell.split(|c: char| {
        quoted ^= c == '"';
        !quoted && (c.is_whitespace() || c == DROPPED)
    });
    !cell.is_empty()
        && attributes.all(|attribute| {
            let name = attribute
                .split_once('=')
                .map_or(attribute, |(name, _)| name);
            attribute.is_empty() || NAMES.iter().any(|known| name.eq_ignore_ascii_case(known))
        })
        && cell.contains('=')
}

/// The level and text of a heading line.
fn heading(line: &str) -> Option<(usize, String)> {
    let line = line.trim_matches(|c: char| c.is_whitespace() || c == DROPPED || c == BREAK);
    let front = line.bytes().take_while(|&b| b == b'=').count();
    let back = line.bytes().rev().take_while(|&b| b == b'=').count();
    let level = front.min(back).min(6);
    if level == 0 || line.len() <= front.max(back) {
        return None;
    }
    let text = line.get(level..line.len() - level)?;
    let text = text.replace([BREAK, CAPTION, CAPTION_END], " ");
    Some((level, finish(&without_quotes(&text))))
}
