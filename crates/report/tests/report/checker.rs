//! Checks a page: a small reader of HTML as strict as XML.

use std::collections::HashSet;

const VOID: &[&str] = &["meta", "br", "img", "link", "hr", "input"];

/// Every tag closed in order, attributes quoted, ids unique, links inside the page, nothing loaded.
pub(crate) fn check_page(page: &str) -> Result<(), String> {
    let (mut open, mut ids, mut links) = (Vec::new(), HashSet::new(), Vec::new());
    let mut rest = page;
    while let Some(start) = rest.find('<') {
        let end = rest[start..].find('>').ok_or("a tag without end")? + start;
        let tag = &rest[start + 1..end];
        rest = &rest[end + 1..];
        if tag.starts_with('!') {
            continue;
        }
        if let Some(name) = tag.strip_prefix('/') {
            match open.pop() {
                Some(top) if top == name => continue,
                top => return Err(format!("</{name}> closes <{}>", top.unwrap_or_default())),
            }
        }
        let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("bare < before {tag:?}"));
        }
        for (key, value) in attributes_of(attributes)? {
            check_attribute(&key, &value, &mut ids, &mut links)?;
        }
        if ["script", "style"].contains(&name) {
            let close = format!("</{name}>");
            let end = rest.find(&close).ok_or_else(|| format!("<{name}> is never closed"))?;
            if ["http", "url(", "@import", "src"].iter().any(|word| rest[..end].contains(word)) {
                return Err(format!("<{name}> loads something"));
            }
            rest = &rest[end + close.len()..];
        } else if !VOID.contains(&name) {
            open.push(name.to_owned());
        }
    }
    if let Some(name) = open.pop() {
        return Err(format!("<{name}> is never closed"));
    }
    match links.into_iter().find(|link| !ids.contains(link)) {
        Some(link) => Err(format!("nothing has the id {link}")),
        None => Ok(()),
    }
}

fn check_attribute(
    key: &str,
    value: &str,
    ids: &mut HashSet<String>,
    links: &mut Vec<String>,
) -> Result<(), String> {
    match (key, value.strip_prefix('#')) {
        ("id", _) if !ids.insert(value.to_owned()) => Err(format!("id {value} twice")),
        ("href", Some(inside)) => {
            links.push(inside.to_owned());
            Ok(())
        }
        ("href" | "src" | "srcset" | "data" | "action" | "poster", _) => {
            Err(format!("{key}={value} loads something"))
        }
        _ if key.starts_with("on") => Err(format!("{key} is a script")),
        _ => Ok(()),
    }
}

/// `a="b" c` as pairs.
fn attributes_of(text: &str) -> Result<Vec<(String, String)>, String> {
    let mut pairs = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        let end = rest.find(['=', ' ', '\n']).unwrap_or(rest.len());
        let key = &rest[..end];
        if key.is_empty() || !key.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(format!("attribute {rest:?}"));
        }
        rest = &rest[end..];
        let mut value = "";
        if let Some(quoted) = rest.strip_prefix("=\"") {
            let close = quoted.find('"').ok_or("attribute without end")?;
            value = &quoted[..close];
            rest = &quoted[close + 1..];
            if !rest.is_empty() && !rest.starts_with([' ', '\n']) {
                return Err(format!("attribute {key} is followed by {rest:?}"));
            }
        }
        pairs.push((key.to_owned(), value.to_owned()));
        rest = rest.trim_start();
    }
    Ok(pairs)
}

#[test]
fn the_check_of_pages_finds_what_it_looks_for() {
    let bad = [
        ("<p><b></p>", "</p> closes <b>"),
        ("<p>", "<p> is never closed"),
        ("<p id=\"a\"></p><p id=\"a\"></p>", "id a twice"),
        ("<img src=\"https://example.org/x.png\">", "loads"),
        ("<style>@import url(x.css)</style>", "loads"),
        ("<a href=\"#b\"></a>", "nothing has the id b"),
        ("<p title=\"a\"b\"></p>", "attribute"),
        ("<p>a < b</p>", "bare <"),
    ];
    for (page, problem) in bad {
        let found = check_page(page).expect_err(page);
        assert!(found.contains(problem), "{page}: {found}");
    }
    check_page("<!DOCTYPE html><p id=\"a\" hidden>x &lt; y<br></p>").expect("nothing is wrong");
}
