//! Formulas in TeX as a line of text: letters and signs, without commands.

/// A formula as text. Fractions become `a/b`, roots `√(…)`, exponents `^…`; layout is left out.
pub(super) fn math_text(source: &str) -> String {
    let mut out = String::new();
    let mut pending = Vec::new();
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => {
                let rest = &source[at + 1..];
                let length = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
                let name = &rest[..length.max(rest.chars().next().map_or(0, char::len_utf8))];
                for _ in name.chars() {
                    chars.next();
                }
                command(name, &mut out, &mut pending);
            }
            '{' => {
                // What the command in front wants in front of and after this group.
                let (open, close) = match pending.pop() {
                    Some(Wanted::Fraction) => {
                        pending.push(Wanted::Denominator);
                        ("", "")
                    }
                    Some(Wanted::Denominator) => ("/", ""),
                    Some(Wanted::Root) => ("√(", ")"),
                    Some(Wanted::Skip) => {
                        skip_group(&mut chars);
                        continue;
                    }
                    Some(outer @ Wanted::Closing(_)) => {
                        pending.push(outer);
                        ("", "")
                    }
                    None => ("", ""),
                };
                out.push_str(open);
                pending.push(Wanted::Closing(close));
            }
            '}' => {
                while let Some(wanted) = pending.pop() {
                    if let Wanted::Closing(close) = wanted {
                        out.push_str(close);
                        break;
                    }
                }
                // A numerator that has just ended leaves its denominator wanted.
            }
            '$' => {}
            '~' | '&' => out.push(' '),
            '\'' => out.push('′'),
            '\n' => out.push(' '),
            c => {
                if !c.is_whitespace()
                    && let Some(
                        Wanted::Fraction | Wanted::Denominator | Wanted::Root | Wanted::Skip,
                    ) = pending.last()
                {
                    single(c, &mut out, &mut pending);
                    continue;
                }
                out.push(c);
            }
        }
    }
    let words: Vec<&str> = out.split_whitespace().collect();
    words.join(" ")
}

/// What the next group or sign is for.
enum Wanted {
    Fraction,
    Denominator,
    Root,
    Skip,
    Closing(&'static str),
}

/// An argument of one sign, without braces.
fn single(c: char, out: &mut String, pending: &mut Vec<Wanted>) {
    match pending.pop() {
        Some(Wanted::Fraction) => {
            pending.push(Wanted::Denominator);
            out.push(c);
        }
        Some(Wanted::Denominator) => out.extend(['/', c]),
        Some(Wanted::Root) => out.extend(['√', c]),
        _ => {}
    }
}

fn skip_group(chars: &mut std::iter::Peekable<std::str::CharIndices<'_>>) {
    let mut depth = 1;
    for (_, c) in chars.by_ref() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return;
        }
    }
}

fn command(name: &str, out: &mut String, pending: &mut Vec<Wanted>) {
    match name {
        "frac" | "dfrac" | "tfrac" | "cfrac" => pending.push(Wanted::Fraction),
        "sqrt" => pending.push(Wanted::Root),
        "begin" | "end" | "color" | "hspace" | "vspace" | "label" | "tag" => {
            pending.push(Wanted::Skip);
        }
        "," | ":" | ";" | " " | "!" | "\\" | "quad" | "qquad" => out.push(' '),
        "{" | "}" | "|" | "%" | "$" | "#" | "_" => out.push_str(name),
        _ => match SYMBOLS.binary_search_by_key(&name, |(known, _)| known) {
            Ok(at) => out.push_str(SYMBOLS[at].1),
            Err(_) => {
                // Names of functions stand upright in a formula: they are its text.
                if FUNCTIONS.contains(&name) {
                    out.push_str(name);
                }
                out.push(' ');
            }
        },
    }
}

const FUNCTIONS: &[&str] = &[
    "arccos", "arcsin", "arctan", "arg", "cos", "cosh", "cot", "csc", "deg", "det", "dim", "exp",
    "gcd", "hom", "inf", "ker", "lg", "lim", "ln", "log", "max", "min", "mod", "sec", "sin",
    "sinh", "sup", "tan", "tanh",
];

/// Commands and their characters, in the order of the commands.
const SYMBOLS: &[(&str, &str)] = &[
    ("Delta", "Δ"),
    ("Gamma", "Γ"),
    ("Lambda", "Λ"),
    ("Leftarrow", "⇐"),
    ("Leftrightarrow", "⇔"),
    ("Omega", "Ω"),
    ("Phi", "Φ"),
    ("Pi", "Π"),
    ("Psi", "Ψ"),
    ("Rightarrow", "⇒"),
    ("Sigma", "Σ"),
    ("Theta", "Θ"),
    ("Upsilon", "Υ"),
    ("Xi", "Ξ"),
    ("alpha", "α"),
    ("approx", "≈"),
    ("ast", "∗"),
    ("beta", "β"),
    ("bullet", "•"),
    ("cap", "∩"),
    ("cdot", "·"),
    ("cdots", "⋯"),
    ("chi", "χ"),
    ("circ", "∘"),
    ("cong", "≅"),
    ("cup", "∪"),
    ("delta", "δ"),
    ("div", "÷"),
    ("dots", "…"),
    ("ell", "ℓ"),
    ("emptyset", "∅"),
    ("epsilon", "ε"),
    ("equiv", "≡"),
    ("eta", "η"),
    ("exists", "∃"),
    ("forall", "∀"),
    ("gamma", "γ"),
    ("ge", "≥"),
    ("geq", "≥"),
    ("gg", "≫"),
    ("hbar", "ℏ"),
    ("iff", "⇔"),
    ("in", "∈"),
    ("infty", "∞"),
    ("int", "∫"),
    ("iota", "ι"),
    ("kappa", "κ"),
    ("lambda", "λ"),
    ("land", "∧"),
    ("langle", "⟨"),
    ("ldots", "…"),
    ("le", "≤"),
    ("leftarrow", "←"),
    ("leftrightarrow", "↔"),
    ("leq", "≤"),
    ("ll", "≪"),
    ("lor", "∨"),
    ("mapsto", "↦"),
    ("mu", "μ"),
    ("nabla", "∇"),
    ("ne", "≠"),
    ("neg", "¬"),
    ("neq", "≠"),
    ("ni", "∋"),
    ("notin", "∉"),
    ("nu", "ν"),
    ("omega", "ω"),
    ("oplus", "⊕"),
    ("otimes", "⊗"),
    ("partial", "∂"),
    ("phi", "φ"),
    ("pi", "π"),
    ("pm", "±"),
    ("prime", "′"),
    ("prod", "∏"),
    ("propto", "∝"),
    ("psi", "ψ"),
    ("rangle", "⟩"),
    ("rho", "ρ"),
    ("rightarrow", "→"),
    ("setminus", "∖"),
    ("sigma", "σ"),
    ("sim", "∼"),
    ("simeq", "≃"),
    ("star", "⋆"),
    ("subset", "⊂"),
    ("subseteq", "⊆"),
    ("sum", "∑"),
    ("supset", "⊃"),
    ("supseteq", "⊇"),
    ("tau", "τ"),
    ("theta", "θ"),
    ("times", "×"),
    ("to", "→"),
    ("upsilon", "υ"),
    ("varepsilon", "ε"),
    ("varphi", "φ"),
    ("vee", "∨"),
    ("wedge", "∧"),
    ("xi", "ξ"),
    ("zeta", "ζ"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formulas() {
        assert!(SYMBOLS.is_sorted_by_key(|(name, _)| name));
        for (source, expected) in [
            ("E=mc^2", "E=mc^2"),
            (r"\frac{a+b}{2}", "a+b/2"),
            (r"\sqrt{x^{2}}", "√(x^2)"),
            (r"\alpha \times \beta", "α × β"),
            (r"\frac12", "1/2"),
            (r"\mathrm{CO_2} \to \mathbf{x}", "CO_2 → x"),
            (r"\begin{matrix} a & b \\ c \end{matrix}", "a b c"),
            (r"\sin x", "sin x"),
            ("}}{{\\", ""),
        ] {
            assert_eq!(math_text(source), expected, "{source}");
        }
    }
}
