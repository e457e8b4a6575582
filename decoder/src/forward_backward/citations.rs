//! Numbered citations in an answer: `[2]`, `[1, 3]`, `[1-3]`.

/// An answer with the citations it holds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cited {
    /// The answer; numbers that stand for nothing are taken out.
    pub text: String,
    /// Numbers of the passages that are cited, from 1, each once, in the order of the text.
    pub numbers: Vec<usize>,
    /// Numbers that stand for no passage, each once, as they were written.
    pub unknown: Vec<String>,
}

/// Longest range that is spelled out: `[1-999999999]` is no list of passages.
const LONGEST_RANGE: usize = 64;

/// Finds the citations in `answer`; `exists` says which numbers stand for a passage that was given. The others
/// are dropped from the text and reported. Brackets that hold anything but numbers stay as they are.
///
/// ```
/// let cited = decoder::forward_backward::citations::resolve("Fleming [1, 9] in 1928 [2].", |n| n <= 2);
/// assert_eq!(cited.text, "Fleming [1] in 1928 [2].");
/// assert_eq!((cited.numbers, cited.unknown), (vec![1, 2], vec!["9".to_owned()]));
/// ```
pub fn resolve(answer: &str, exists: impl Fn(usize) -> bool) -> Cited {
    let mut cited = Cited::default();
    let mut rest = answer;
    while let Some(at) = rest.find('[') {
        let (before, bracket) = rest.split_at(at);
        cited.text.push_str(before);
        let Some((numbers, inside)) = numbers(bracket) else {
            cited.text.push('[');
            rest = &bracket[1..];
            continue;
        };
        rest = &bracket[inside.len() + 2..];
        let mut kept: Vec<usize> = Vec::new();
        for number in numbers {
            match number.parse::<usize>() {
                Ok(known) if exists(known) => kept.push(known),
                _ => {
                    if !cited.unknown.contains(&number) {
                        cited.unknown.push(number);
                    }
                }
            }
        }
        for &number in &kept {
            if !cited.numbers.contains(&number) {
                cited.numbers.push(number);
            }
        }
        if kept.is_empty() {
            // The space in front goes with it.
            let length = cited.text.trim_end_matches(' ').len();
            cited.text.truncate(length);
        } else {
            let kept: Vec<String> = kept.iter().map(usize::to_string).collect();
            cited.text.push_str(&format!("[{}]", kept.join(", ")));
        }
    }
    cited.text.push_str(rest);
    cited.text = cited.text.trim().to_owned();
    cited
}

/// The answer without its citations, as it is compared with other answers.
pub fn without(answer: &str) -> String {
    resolve(answer, |_| false).text
}

/// The numbers of the citation that `bracket`, which begins with `[`, begins with, and what stands between the
/// brackets; `None` if that is anything but numbers.
pub(super) fn numbers(bracket: &str) -> Option<(Vec<String>, &str)> {
    let listed =
        |c: char| c.is_ascii_digit() || c.is_whitespace() || matches!(c, ',' | ';' | '-' | '–');
    let inside = bracket.get(1..)?;
    let inside = &inside[..inside.find(|c| !listed(c))?];
    let closed = bracket[1 + inside.len()..].starts_with(']');
    Some((list(inside).filter(|_| closed)?, inside))
}

/// The numbers of a list, as written; `None` if it holds anything else.
fn list(inside: &str) -> Option<Vec<String>> {
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let mut numbers = Vec::new();
    for part in inside.split([',', ';']) {
        let part = part.trim();
        if digits(part) {
            numbers.push(part.to_owned());
            continue;
        }
        let (from, to) = part.split_once(['-', '–'])?;
        let (from, to) = (from.trim(), to.trim());
        if !digits(from) || !digits(to) {
            return None;
        }
        match (from.parse::<usize>(), to.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last - first < LONGEST_RANGE => {
                numbers.extend((first..=last).map(|number| number.to_string()));
            }
            // As years are: a range that can be no list of passages counts as one unknown number.
            _ => numbers.push(part.to_owned()),
        }
    }
    Some(numbers)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(answer: &str, text: &str, numbers: &[usize], unknown: &[&str]) {
        let cited = resolve(answer, |number| (1..=3).contains(&number));
        assert_eq!(cited.text, text);
        assert_eq!(cited.numbers, numbers);
        assert_eq!(cited.unknown, unknown);
    }

    #[test]
    fn numbers_that_exist_are_kept() {
        check("Paris [2].", "Paris [2].", &[2], &[]);
        check("a [3][1] b [3]", "a [3][1] b [3]", &[3, 1], &[]);
        check("a [1,2 ; 3]", "a [1, 2, 3]", &[1, 2, 3], &[]);
        check("a [1-3]", "a [1, 2, 3]", &[1, 2, 3], &[]);
        check("a [2–3]", "a [2, 3]", &[2, 3], &[]);
        check("a [1,\n2] b [\u{a0}3 ]", "a [1, 2] b [3]", &[1, 2, 3], &[]);
    }

    #[test]
    fn numbers_that_do_not_are_dropped_and_reported() {
        check("Paris [7].", "Paris.", &[], &["7"]);
        check("a [0] b [4] c [4]", "a b c", &[], &["0", "4"]);
        check("a [2, 9]", "a [2]", &[2], &["9"]);
        check(
            "a [99999999999999999999999]",
            "a",
            &[],
            &["99999999999999999999999"],
        );
        check("a [1-999999999]", "a", &[], &["1-999999999"]);
        check("a [3-1]", "a", &[], &["3-1"]);
    }

    #[test]
    fn other_brackets_stay() {
        for text in ["[sic]", "a [] b", "[", "a [1", "[a, 1]", "[1.5]", "é [東]"] {
            check(text, text, &[], &[]);
        }
        check("", "", &[], &[]);
        check("[[2]]", "[[2]]", &[2], &[]);
    }
}
