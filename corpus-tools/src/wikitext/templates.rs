//! Templates whose text stands in the middle of sentences: what a reader sees of them.
//!
//! Their definitions lie elsewhere in a dump, or in a program; so the common ones are known by name, in
//! the larger languages. Everything else (boxes, notes, sources, hatnotes) is left out.

use super::expand::Call;
use super::marks::{BREAK, DROPPED};

/// What a template becomes.
enum Kind {
    /// One of its positional arguments, from 1.
    Nth(usize),
    /// The last of its positional arguments.
    Last,
    /// All positional arguments with something between.
    Join(&'static str),
    /// Always the same.
    Text(&'static str),
    /// The argument of one of these names, else the first positional one, as a paragraph of its own.
    Quote(&'static [&'static str]),
    /// Prefix of a ship and its name.
    Ship,
    /// A quantity with its unit.
    Quantity,
    /// A date in numbers: year, month, day.
    Date,
    /// The label of a link to another language's page: the named argument, the `n`th, or the first.
    Link(&'static str, usize),
    Circa,
    Fraction,
    AsOf,
    Value,
    SortName,
    /// Text with readings in brackets: which argument stands first.
    Readings,
    Chinese,
    /// Its own name.
    Name,
}

use Kind::*;

/// Names in lower case, in order.
const KNOWN: &[(&str, Kind)] = &[
    ("!", Text("|")),
    ("!!", Text("||")),
    ("'", Text("’")),
    ("'s", Text("’s")),
    ("(!", Text("{|")),
    ("-", Text("")),
    ("=", Text("=")),
    ("1er", Text("1er")),
    ("abbr", Nth(1)),
    ("abbrlink", Nth(1)),
    ("as of", AsOf),
    ("big", Nth(1)),
    ("block quote", Quote(&["text", "quote"])),
    ("blockquote", Quote(&["text", "quote"])),
    ("c.", Circa),
    ("ca.", Circa),
    ("center", Nth(1)),
    ("chem", Join("")),
    ("chem2", Nth(1)),
    ("circa", Circa),
    ("cita", Nth(1)),
    ("citation bloc", Quote(&["texte"])),
    ("cnd", Text("")),
    ("code", Nth(1)),
    ("color", Nth(2)),
    ("comment", Nth(1)),
    ("convert", Quantity),
    ("cquote", Quote(&["text", "quote"])),
    ("cvt", Quantity),
    ("cytat", Quote(&["treść"])),
    ("date", Join(" ")),
    ("dts", Join(" ")),
    ("em", Nth(1)),
    ("emdash", Text("—")),
    ("endash", Text("–")),
    ("esd", Nth(1)),
    ("fact", Text("")),
    ("fb", Nth(1)),
    ("fbw", Nth(1)),
    ("fecha", Join(" ")),
    ("flag", Nth(1)),
    ("flagathlete", Nth(1)),
    ("flagcountry", Nth(1)),
    ("flagdeco", Text("")),
    ("flagioc", Nth(1)),
    ("flagiocathlete", Nth(1)),
    ("flagmedalist", Nth(1)),
    ("flagu", Nth(1)),
    ("flatlist", Nth(1)),
    ("fmtn", Nth(1)),
    ("fontcolor", Last),
    ("font color", Last),
    ("formatnum", Nth(1)),
    ("frac", Fraction),
    ("fraction", Fraction),
    ("g", Nth(1)),
    ("gaps", Join(" ")),
    ("hlist", Join(", ")),
    ("hms", Ship),
    ("ill", Link("lt", 0)),
    ("illm", Link("lt", 0)),
    ("ilm", Link("lt", 0)),
    ("interlanguage link", Link("lt", 0)),
    ("interlanguage link multi", Link("lt", 0)),
    ("iw2", Link("", 2)),
    ("j", Nth(1)),
    ("keypress", Join("+")),
    ("lang", Nth(2)),
    ("langx", Nth(2)),
    ("langue", Nth(2)),
    ("le", Link("", 2)),
    ("link-interwiki", Link("lt", 0)),
    ("linktext", Join(" ")),
    ("lk", Nth(1)),
    ("m", Quantity),
    ("math", Nth(1)),
    ("mdash", Text("—")),
    ("monospace", Nth(1)),
    ("mono", Nth(1)),
    ("mv", Ship),
    ("mvar", Nth(1)),
    ("n°", Text("n°")),
    ("nb", Join(" ")),
    ("nbsp", Text(" ")),
    ("ndash", Text("–")),
    ("nft", Nth(1)),
    ("nihongo", Readings),
    ("nihongo foot", Nth(1)),
    ("nihongo2", Nth(1)),
    ("nihongo3", Readings),
    ("nobold", Nth(1)),
    ("nobr", Nth(1)),
    ("no wrap", Nth(1)),
    ("nombre", Join(" ")),
    ("nom", Text("Nominated")),
    ("nominated", Text("Nominated")),
    ("nowrap", Nth(1)),
    ("nts", Nth(1)),
    ("num", Join(" ")),
    ("number", Nth(1)),
    ("pagename", Text("")),
    ("plainlist", Nth(1)),
    ("player", Nth(3)),
    ("polytonic", Nth(1)),
    ("pull quote", Quote(&["text", "quote"])),
    ("quotation", Quote(&["text", "quote"])),
    ("quote", Quote(&["text", "quote"])),
    ("quote box", Quote(&["quote", "text"])),
    ("quotebox", Quote(&["quote", "text"])),
    ("rms", Ship),
    ("rtl-lang", Nth(2)),
    ("ruby", Nth(1)),
    ("s", Join("")),
    ("sclass", Join(" ")),
    ("script", Nth(2)),
    ("sfrac", Fraction),
    ("ship", Ship),
    ("sic", Nth(1)),
    ("small", Nth(1)),
    ("smallcaps", Nth(1)),
    ("smaller", Nth(1)),
    ("snd", Text(" – ")),
    ("sndash", Text(" – ")),
    ("sort", Last),
    ("sortname", SortName),
    ("spaced en dash", Text(" – ")),
    ("spaced ndash", Text(" – ")),
    ("spnd", Text(" – ")),
    ("ss", Ship),
    ("strong", Nth(1)),
    ("sub", Nth(1)),
    ("sup", Nth(1)),
    ("text", Nth(1)),
    ("tooltip", Nth(1)),
    ("tq", Nth(1)),
    ("transl", Last),
    ("transliteration", Last),
    ("tsl", Link("", 3)),
    ("ubl", Join(", ")),
    ("unbulleted list", Join(", ")),
    ("underline", Nth(1)),
    ("unidad", Join(" ")),
    ("unite", Join(" ")),
    ("unité", Join(" ")),
    ("uss", Ship),
    ("val", Value),
    ("verse translation", Quote(&[])),
    ("vr", Nth(1)),
    ("won", Text("Won")),
    ("yes", Text("Yes")),
    ("no", Text("No")),
    ("zh", Chinese),
    ("zitat", Quote(&["text"])),
    ("zwj", Text("")),
    ("дата", Join(" ")),
    ("не переведено", Link("", 2)),
    ("не переведено 2", Link("", 2)),
    ("не переведено 3", Link("", 2)),
    ("не переведено 5", Link("", 2)),
    ("нп", Link("", 2)),
    ("нп1", Link("", 2)),
    ("нп2", Link("", 2)),
    ("нп3", Link("", 2)),
    ("нп4", Link("", 2)),
    ("нп5", Link("", 2)),
    ("цитата", Quote(&["текст"])),
    ("число", Nth(1)),
    ("仮リンク", Link("label", 0)),
    ("日本語版にリンク", Nth(1)),
    ("読み仮名", Readings),
];

/// Writes what a reader sees of a template; or the mark of something left out.
pub(super) fn render(call: &mut Call<'_, '_>) {
    let name = call.name().to_owned();
    let lower = name.to_lowercase();
    match KNOWN.iter().find(|(known, _)| *known == lower) {
        Some((_, kind)) => render_as(kind, call),
        None => match pattern(&name, &lower) {
            Some(kind) => render_as(&kind, call),
            None => call.push(&DROPPED.to_string()),
        },
    }
}

/// Templates that are known by the shape of their names.
fn pattern(name: &str, lower: &str) -> Option<Kind> {
    let code = |text: &str| {
        (2..=12).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_lowercase() || b == b'-')
    };
    if let Some(rest) = lower.strip_prefix("lang-") {
        let rest = rest.trim_end_matches(|c: char| c.is_ascii_digit());
        return match rest {
            "zh" => Some(Chinese),
            rest => code(rest).then_some(Nth(1)),
        };
    }
    if let Some(rest) = lower.strip_prefix("link-") {
        return code(rest).then_some(Link("", 2));
    }
    if lower
        .strip_prefix("internal link helper/")
        .is_some_and(code)
    {
        return Some(Link("", 2));
    }
    if name
        .strip_suffix('S')
        .is_some_and(|rest| rest.len() < 4 && code(rest))
    {
        return Some(Nth(1));
    }
    // Flags by the codes of countries.
    if name.len() == 3
        && name.bytes().all(|b| b.is_ascii_uppercase())
        && !["TOC", "CLR", "POV", "COI", "IPA", "API", "NLA"].contains(&name)
    {
        return Some(Name);
    }
    for date in [
        "birth date",
        "birth-date",
        "death date",
        "death-date",
        "start date",
        "end date",
        "bda",
        "dob",
    ] {
        if lower.starts_with(date) {
            return Some(Date);
        }
    }
    None
}

fn render_as(kind: &Kind, call: &mut Call<'_, '_>) {
    let text = match kind {
        Nth(number) => call.positional(*number).or_else(|| call.positional(1)),
        Last => (1..=call.count())
            .rev()
            .find_map(|number| call.positional(number)),
        Join(between) => join(call, 1, between),
        Text(text) => Some((*text).to_owned()),
        // `{{GER}}` is a flag; with something behind it the code is a ship's prefix or a currency.
        Name => join_some([Some(call.name().to_owned()), call.positional(1)], " "),
        Quote(names) => quote(call, names),
        Ship => ship(call),
        Quantity => quantity(call),
        Date => date(call),
        Link(name, number) => [
            call.named(name),
            call.positional(*number),
            call.positional(1),
        ]
        .into_iter()
        .flatten()
        .next(),
        Circa => join(call, 1, "–").map(|years| format!("c. {years}")),
        Fraction => fraction(call),
        AsOf => as_of(call),
        Value => value(call),
        SortName => join_some([call.positional(1), call.positional(2)], " "),
        Readings => {
            let rest: Vec<String> = (2..=4)
                .filter_map(|number| call.positional(number))
                .collect();
            match (call.positional(1), rest.is_empty()) {
                (first, true) => first,
                (Some(first), false) => Some(format!("{first} ({})", rest.join(", "))),
                (None, false) => Some(rest.join(", ")),
            }
        }
        Chinese => {
            let named = ["c", "s", "t", "p", "w", "j", "poj", "l"].map(|name| call.named(name));
            let text = join_some(named, "; ");
            text.or_else(|| call.positional(1))
        }
    };
    match text {
        Some(text) => call.push(&text),
        None => call.push(&DROPPED.to_string()),
    }
}

fn join(call: &mut Call<'_, '_>, from: usize, between: &str) -> Option<String> {
    let parts: Vec<String> = (from..=call.count())
        .filter_map(|number| call.positional(number))
        .collect();
    (!parts.is_empty()).then(|| parts.join(between))
}

fn join_some<const N: usize>(parts: [Option<String>; N], between: &str) -> Option<String> {
    let parts: Vec<String> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(between))
}

fn quote(call: &mut Call<'_, '_>, names: &[&str]) -> Option<String> {
    let named = names.iter().find_map(|name| call.named(name));
    let text = named.or_else(|| call.positional(1))?;
    let source = call.named("author").or_else(|| call.positional(2));
    Some(match source {
        Some(source) => format!("\n{text}{BREAK}— {source}{BREAK}\n"),
        None => format!("\n{text}{BREAK}\n"),
    })
}

fn ship(call: &mut Call<'_, '_>) -> Option<String> {
    match call.name().to_uppercase().as_str() {
        "SHIP" => join_some([call.positional(1), call.positional(2)], " "),
        prefix => Some(format!("{prefix} {}", call.positional(1)?)),
    }
}

/// `10|km|…` as `10 km`, `10|to|20|km` as `10 to 20 km`, `6|ft|2|in` as `6 ft 2 in`.
fn quantity(call: &mut Call<'_, '_>) -> Option<String> {
    let number = |text: &str| {
        text.starts_with(|c: char| c.is_ascii_digit() || "+-−.".contains(c))
            && text.contains(|c: char| c.is_ascii_digit())
    };
    let mut text = call.positional(1)?;
    let mut at = 2;
    while let Some(part) = call.positional(at) {
        let next = call.positional(at + 1).filter(|next| number(next));
        let range = matches!(
            part.as_str(),
            "-" | "–" | "to" | "and" | "or" | "x" | "by" | "+/-" | "±" | "to(-)" | "+" | "*" | ","
        );
        match (range, next) {
            (true, Some(next)) => {
                let between = match part.as_str() {
                    "-" | "–" | "to(-)" => "–".to_owned(),
                    "x" | "*" => " × ".to_owned(),
                    "," => ", ".to_owned(),
                    "+/-" | "±" => " ± ".to_owned(),
                    word => format!(" {word} "),
                };
                text.push_str(&between);
                text.push_str(&next);
                at += 2;
            }
            (false, next) => {
                text.push(' ');
                text.push_str(unit(&part));
                // Feet and inches, pounds and ounces.
                match next {
                    Some(next) if matches!(part.as_str(), "ft" | "lb" | "st" | "mi" | "yd") => {
                        text.push(' ');
                        text.push_str(&next);
                        at += 2;
                    }
                    _ => break,
                }
            }
            (true, None) => break,
        }
    }
    if let Some(given) = call.named("u") {
        text = format!("{text} {given}");
    }
    Some(text)
}

fn unit(code: &str) -> &str {
    match code {
        "sqmi" => "sq mi",
        "sqft" => "sq ft",
        "sqyd" => "sq yd",
        "km2" => "km²",
        "m2" => "m²",
        "cm2" => "cm²",
        "mm2" => "mm²",
        "ft2" => "ft²",
        "km3" => "km³",
        "m3" => "m³",
        "cm3" => "cm³",
        "ft3" => "ft³",
        "C" => "°C",
        "F" => "°F",
        "m/s2" => "m/s²",
        "kg/m3" => "kg/m³",
        other => other,
    }
}

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

fn month(text: &str) -> Option<&'static str> {
    let number: usize = text.trim().parse().ok()?;
    MONTHS.get(number.checked_sub(1)?).copied()
}

/// The first date of a birth, death, start or end template.
fn date(call: &mut Call<'_, '_>) -> Option<String> {
    let year = call.positional(1)?;
    if !year.trim().bytes().all(|b| b.is_ascii_digit()) {
        return Some(year);
    }
    let Some(month) = call.positional(2).and_then(|number| month(&number)) else {
        return Some(year);
    };
    let day = call
        .positional(3)
        .filter(|day| day.trim().parse::<u8>().is_ok());
    let day_first = call.named("df").is_some_and(|df| df.starts_with('y'));
    Some(match day {
        None => format!("{month} {year}"),
        Some(day) if day_first => format!("{day} {month} {year}"),
        Some(day) => format!("{month} {day}, {year}"),
    })
}

fn as_of(call: &mut Call<'_, '_>) -> Option<String> {
    if let Some(alt) = call.named("alt") {
        return Some(alt);
    }
    let begin = match (call.named("since").is_some(), call.named("lc").is_some()) {
        (false, false) => "As of",
        (false, true) => "as of",
        (true, false) => "Since",
        (true, true) => "since",
    };
    Some(format!("{begin} {}", date(call)?))
}

/// `1|2` as `1/2`, `3|1|2` as `3 1/2`, `2` as `1/2`.
fn fraction(call: &mut Call<'_, '_>) -> Option<String> {
    let first = call.positional(1)?;
    Some(match (call.positional(2), call.positional(3)) {
        (None, _) => format!("1/{first}"),
        (Some(second), None) => format!("{first}/{second}"),
        (Some(second), Some(third)) => format!("{first} {second}/{third}"),
    })
}

fn value(call: &mut Call<'_, '_>) -> Option<String> {
    let mut text = call.positional(1)?;
    if let Some(error) = call.positional(2) {
        text = format!("{text} ± {error}");
    }
    if let Some(exponent) = call.named("e") {
        text = format!("{text}×10^{exponent}");
    }
    if let Some(unit) = call.named("u").or_else(|| call.named("ul")) {
        text = format!("{text} {unit}");
    }
    Some(text)
}
