//! The summary as Markdown tables.

use std::fmt::Write as _;

use super::summary::{MethodSummary, PREFIXES, SetSummary, Summary};
use corpus_tools::metrics::bootstrap::Interval;

/// A share as `.62 [.58, .66]`: the mean and its 95 % interval.
fn share(interval: &Interval) -> String {
    let short = |value: f64| {
        let text = format!("{value:.2}");
        text.strip_prefix('0').map_or(text.clone(), str::to_owned)
    };
    format!(
        "{:.3} [{}, {}]",
        interval.mean,
        short(interval.low),
        short(interval.high)
    )
}

fn cell(method: &MethodSummary, metric: &str) -> String {
    method.metrics.get(metric).map_or("–".to_owned(), share)
}

impl Summary {
    /// Two tables a set, retrieval and answers, and what was run; shares with their 95 % intervals.
    pub fn markdown(&self) -> String {
        let mut text = String::new();
        let plan = &self.plan;
        let _ = writeln!(
            text,
            "Index {}: {} documents, {} tokens, {:.1} MB. Seed {}.{}",
            plan.index.path,
            plan.index.documents,
            plan.index.tokens,
            plan.index.bytes as f64 / 1e6,
            plan.seed,
            match plan.sizes.cut {
                0 => String::new(),
                most => format!(" Where it says cut, texts are cut to {most} tokens."),
            },
        );
        let models: std::collections::BTreeSet<&str> = plan
            .methods
            .iter()
            .filter_map(|method| method.model.as_deref())
            .collect();
        if !models.is_empty() {
            let models: Vec<&str> = models.into_iter().collect();
            let _ = writeln!(text, "Language model: {}.", models.join(", "));
        }
        for set in &self.sets {
            if !set.methods.is_empty() {
                self.set(&mut text, set);
            }
        }
        text
    }

    fn set(&self, text: &mut String, set: &SetSummary) {
        let _ = writeln!(text, "\n## {}\n", set.name);
        if let Some(note) = self.plan.sets.iter().find(|note| note.name == set.name)
            && note.gold_missing + note.bad > 0
        {
            let _ = writeln!(
                text,
                "{} of {} gold documents are not in the index; {} records could not be read.\n",
                note.gold_missing, note.gold, note.bad
            );
        }
        if let Some(first) = set.methods.first() {
            let left = &first.unjudged;
            let asked = set.methods.iter().map(|method| method.questions);
            let (least, most) = asked.fold((usize::MAX, 0), |(least, most), asked| {
                (least.min(asked), most.max(asked))
            });
            let asked = match least == most {
                true => most.to_string(),
                false => format!("{least} to {most}, by method,"),
            };
            let of = self.plan.sets.iter().find(|note| note.name == set.name);
            let of = of.map_or(most, |note| note.questions);
            let _ = writeln!(
                text,
                "{asked} of {of} questions; {}{} answered by yes or no (not judged by text), {} without a gold answer, {} without a gold document.",
                match least == most {
                    true => String::new(),
                    false => format!("of the {} of {}: ", first.questions, first.name),
                },
                left.yes_no,
                left.no_answer,
                left.no_gold
            );
            text.push('\n');
        }
        for method in set
            .methods
            .iter()
            .filter(|method| method.unjudged.failed > 0)
        {
            let _ = writeln!(
                text,
                "{}: {} questions could not be asked; they count as misses, and not in what it cost.\n",
                method.name, method.unjudged.failed
            );
        }
        let mut columns: Vec<(String, String)> = Vec::new();
        for (metric, shown) in [
            ("has_answer", "has_answer R@"),
            ("cut.has_answer", "cut has_answer R@"),
            ("substring", "substring R@"),
            ("gold_hit", "gold-id hit@"),
            ("gold_recall", "gold-id recall@"),
            ("gold_all", "gold-id all@"),
            ("silver_hit", "silver hit@"),
        ] {
            for k in &self.plan.top_k {
                columns.push((format!("{metric}@{k}"), format!("{shown}{k}")));
            }
        }
        table(text, set, &columns);
        let answers = [
            ("em", "EM"),
            ("f1", "F1"),
            ("accuracy", "accuracy"),
            ("rouge_l", "ROUGE-L"),
        ];
        let mut samples = vec![("sample_right".to_owned(), "a sample is right".to_owned())];
        for k in &self.plan.top_k {
            let shown = format!("no sample right, R@{k}");
            samples.push((format!("found_unsampled@{k}"), shown));
        }
        table(text, set, &samples);
        let lengths = PREFIXES.map(|n| {
            (
                format!("prefix@{n}"),
                format!("beams lead to gold after {n}"),
            )
        });
        table(text, set, &lengths);
        let answers = answers.map(|(metric, shown)| (metric.to_owned(), shown.to_owned()));
        table(text, set, &answers);
        let _ = writeln!(
            text,
            "| method | questions | p50 ms | p95 ms | seconds | tokens in | tokens out | passes | texts | tokens a text |\n| --- | --: | --: | --: | --: | --: | --: | --: | --: | --: |"
        );
        for method in &set.methods {
            let cost = &method.cost;
            let _ = writeln!(
                text,
                "| {} | {} | {:.0} | {:.0} | {:.0} | {:.0} | {:.0} | {:.1} | {:.1} | {:.0} |",
                method.name,
                method.questions,
                cost.p50_ms,
                cost.p95_ms,
                cost.seconds,
                cost.tokens_in,
                cost.tokens_out,
                cost.passes,
                cost.texts,
                cost.tokens_per_text,
            );
        }
        self.differences(text, set);
    }

    /// Differences to the first method, by the metrics that say most.
    fn differences(&self, text: &mut String, set: &SetSummary) {
        let Some(first) = set.methods.first() else {
            return;
        };
        let shown = |metric: &str| {
            let (name, _) = metric.split_once('@').unwrap_or((metric, ""));
            matches!(
                name,
                "has_answer" | "cut.has_answer" | "gold_recall" | "em" | "f1"
            )
        };
        let lines: Vec<String> = set
            .differences
            .iter()
            .filter(|compared| compared.a == first.name && shown(&compared.metric))
            .map(|compared| {
                let found = &compared.difference;
                format!(
                    "| {} − {} | {} | {:+.3} | [{:+.3}, {:+.3}] | {:.3} | {} |",
                    compared.a,
                    compared.b,
                    compared.metric,
                    found.interval.mean,
                    found.interval.low,
                    found.interval.high,
                    found.p,
                    found.interval.questions
                )
            })
            .collect();
        if !lines.is_empty() {
            let _ = writeln!(
                text,
                "\nPaired bootstrap:\n\n| methods | metric | difference | 95 % | p | questions |\n| --- | --- | --: | --: | --: | --: |\n{}",
                lines.join("\n")
            );
        }
    }
}

/// One row a method; columns without a value are left out.
fn table(text: &mut String, set: &SetSummary, columns: &[(String, String)]) {
    let columns: Vec<&(String, String)> = columns
        .iter()
        .filter(|(metric, _)| {
            let has = |method: &MethodSummary| method.metrics.contains_key(metric);
            set.methods.iter().any(has)
        })
        .collect();
    if columns.is_empty() {
        return;
    }
    let names: Vec<&str> = columns.iter().map(|(_, shown)| shown.as_str()).collect();
    let _ = writeln!(text, "| method | {} |", names.join(" | "));
    let _ = writeln!(text, "| --- |{}", " --: |".repeat(columns.len()));
    for method in &set.methods {
        let cells: Vec<String> = columns
            .iter()
            .map(|(metric, _)| cell(method, metric))
            .collect();
        let _ = writeln!(text, "| {} | {} |", method.name, cells.join(" | "));
    }
    text.push('\n');
}
