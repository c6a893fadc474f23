//! Links between the pages: each leads to a file that is there, and to a heading of it.

use std::collections::{HashMap, HashSet};

use pulldown_cmark::{Event, Parser, Tag, TagEnd};

use super::{Breach, Source};

/// Every link of the Markdown files among `files` that leads nowhere; `exists` knows the paths from the root. Links to
/// other sites are not asked.
pub(super) fn check(files: &[Source], exists: impl Fn(&str) -> bool) -> Vec<Breach> {
    let pages: Vec<&Source> = files.iter().filter(|file| file.path.ends_with(".md")).collect();
    let anchors: HashMap<&str, HashSet<String>> =
        pages.iter().map(|page| (page.path.as_str(), anchors(&page.text))).collect();
    let mut breaches = Vec::new();
    for page in pages {
        for (line, link) in links(&page.text).filter(|(_, link)| !link.contains(':')) {
            let (path, anchor) = link.split_once('#').unwrap_or((&link, ""));
            let path = if path.is_empty() { page.path.clone() } else { beside(&page.path, path) };
            let broken = if !exists(&path) {
                format!("links to {path}, which is not there")
            } else if anchor.is_empty() || anchors.get(path.as_str()).is_some_and(|anchors| anchors.contains(anchor)) {
                continue;
            } else {
                format!("links to #{anchor}, which is no heading of {path}")
            };
            breaches.push(Breach::new(format!("{}:{line}", page.path), broken));
        }
    }
    breaches
}

/// The lines and targets of all links and pictures.
fn links(text: &str) -> impl Iterator<Item = (usize, String)> {
    Parser::new(text).into_offset_iter().filter_map(|(event, range)| match event {
        Event::Start(Tag::Link { dest_url, .. } | Tag::Image { dest_url, .. }) => {
            Some((1 + text[..range.start].matches('\n').count(), dest_url.into_string()))
        }
        _ => None,
    })
}

/// What a link to each heading says, as GitHub makes it: a second heading of a name gets `-1`.
fn anchors(text: &str) -> HashSet<String> {
    let mut anchors = HashSet::new();
    let mut heading: Option<String> = None;
    for event in Parser::new(text) {
        match (event, &mut heading) {
            (Event::Start(Tag::Heading { .. }), _) => heading = Some(String::new()),
            (Event::Text(text) | Event::Code(text), Some(heading)) => heading.push_str(&text),
            (Event::End(TagEnd::Heading(_)), _) => {
                let kept = |c: &char| c.is_alphanumeric() || [' ', '-', '_'].contains(c);
                let name = heading.take().unwrap_or_default().to_lowercase().chars().filter(kept).collect::<String>();
                let name = name.replace(' ', "-");
                let mut numbered = (1..).map(|number| format!("{name}-{number}"));
                let mut anchor = name.clone();
                while !anchors.insert(anchor.clone()) {
                    anchor = numbered.next().expect("numbers do not end");
                }
            }
            _ => {}
        }
    }
    anchors
}

/// The path from the root that `path` means in a page.
fn beside(page: &str, path: &str) -> String {
    let mut names: Vec<&str> = page.split('/').collect();
    names.pop();
    for name in path.split('/') {
        match name {
            "." | "" => {}
            ".." if names.last().is_some_and(|last| *last != "..") => drop(names.pop()),
            name => names.push(name),
        }
    }
    names.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn breaches(text: &str) -> Vec<String> {
        let pages = [("docs/a.md", text), ("README.md", "# Two words\n## The `code` (of it)\n## Two words\n")];
        let files = pages.map(|(path, text)| Source { path: path.into(), text: text.into() });
        let there = ["docs/a.md", "README.md", "docs/picture.svg", "docs"];
        check(&files, |path| there.contains(&path)).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn links_that_lead_somewhere_pass() {
        let good = [
            "[a](../README.md) [b](../README.md#two-words) [c](../README.md#two-words-1) [d](../README.md#the-code-of-it)",
            "# Here\n[a](#here) [b](a.md) ![c](./picture.svg) [d](../docs)",
            "[a](https://example.com/x.md) `[b](gone.md)`\n\n```text\n[c](gone.md)\n```",
        ];
        for text in good {
            assert_eq!(breaches(text), [""; 0], "{text}");
        }
    }

    #[test]
    fn links_that_lead_nowhere_are_named() {
        assert_eq!(breaches("one\n\n[a](gone.md)"), ["docs/a.md:3: links to docs/gone.md, which is not there"]);
        assert_eq!(breaches("![a](../picture.svg)"), ["docs/a.md:1: links to picture.svg, which is not there"]);
        assert_eq!(breaches("[a](../../README.md)"), ["docs/a.md:1: links to ../README.md, which is not there"]);
        assert_eq!(
            breaches("[a](../README.md#two-words-2)\n[b][c]\n\n[c]: #here"),
            [
                "docs/a.md:1: links to #two-words-2, which is no heading of README.md",
                "docs/a.md:2: links to #here, which is no heading of docs/a.md"
            ]
        );
    }
}
