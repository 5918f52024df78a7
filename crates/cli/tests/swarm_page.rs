//! The page of `fathom swarm --listen` in a real browser (Chromium, asked through its debugging pipe): it renews
//! itself, keeps what is unfolded, fits a desk and a telephone, breaks no rule of its own policy, and is a file
//! afterwards.

mod common;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use common::{command, scratch};
use serde_json::{Value, json};

/// Widths of a desk and of a telephone.
const WIDTHS: [u32; 2] = [1280, 390];

const PATIENCE: Duration = Duration::from_secs(90);

/// A browser with one tab; it ends with the test.
struct Browser {
    child: Child,
    to: ChildStdin,
    from: Receiver<Value>,
    session: Option<String>,
    number: u64,
    /// What the browser complained of: exceptions, refused requests, broken rules of the policy.
    complaints: Vec<String>,
}

impl Drop for Browser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The browser of this machine, if it has one.
fn chromium() -> Option<&'static str> {
    ["chromium", "chromium-browser", "google-chrome"].into_iter().find(|name| {
        let found = Command::new("sh").args(["-c", &format!("command -v {name}")]).output();
        found.is_ok_and(|output| output.status.success())
    })
}

impl Browser {
    fn start(program: &str, profile: &Path) -> Browser {
        // The pipe is the file descriptors 3 and 4 of the browser, messages end with a zero.
        let script = format!(
            "exec {program} --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --no-first-run \
             --user-data-dir={} --remote-debugging-pipe about:blank \
             3<&0 4>&1 < /dev/null > /dev/null 2> /dev/null",
            profile.display()
        );
        let mut command = Command::new("sh");
        command.args(["-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (to, from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let (sender, receiver) = channel();
        std::thread::spawn(move || {
            let mut from = BufReader::new(from);
            loop {
                let mut bytes = Vec::new();
                if !from.read_until(0, &mut bytes).is_ok_and(|read| read > 0) {
                    return;
                }
                bytes.pop();
                let Ok(message) = serde_json::from_slice(&bytes) else { return };
                if sender.send(message).is_err() {
                    return;
                }
            }
        });
        let complaints = Vec::new();
        let mut browser =
            Browser { child, to, from: receiver, session: None, number: 0, complaints };
        let tab = browser.call("Target.createTarget", json!({"url": "about:blank"}));
        let tab = json!({"targetId": tab["targetId"], "flatten": true});
        let attached = browser.call("Target.attachToTarget", tab);
        browser.session = attached["sessionId"].as_str().map(str::to_owned);
        for domain in ["Runtime", "Log", "Page"] {
            browser.call(&format!("{domain}.enable"), json!({}));
        }
        browser
    }

    fn call(&mut self, method: &str, params: Value) -> Value {
        self.number += 1;
        let mut message = json!({"id": self.number, "method": method, "params": params});
        if let Some(session) = &self.session {
            message["sessionId"] = json!(session);
        }
        let mut bytes = serde_json::to_vec(&message).unwrap();
        bytes.push(0);
        self.to.write_all(&bytes).unwrap();
        loop {
            let answer = self.from.recv_timeout(PATIENCE).expect("the browser answers");
            match answer["method"].as_str() {
                Some("Runtime.exceptionThrown" | "Log.entryAdded") => {
                    self.complaints.push(answer["params"].to_string());
                }
                _ if answer["id"] == self.number => {
                    assert!(answer["error"].is_null(), "{method}: {answer}");
                    return answer["result"].clone();
                }
                _ => {}
            }
        }
    }

    fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({"expression": expression, "returnByValue": true});
        let answer = self.call("Runtime.evaluate", params);
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer}");
        answer["result"]["value"].clone()
    }

    /// Waits until an expression is true in the page.
    fn wait(&mut self, expression: &str) {
        let began = Instant::now();
        while self.evaluate(expression) != true {
            let page = self.evaluate("document.body.innerText");
            assert!(began.elapsed() < PATIENCE, "waiting for {expression} in {page}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Opens a page as wide as that; nothing of it may be to the right of the window.
    fn open(&mut self, url: &str, width: u32) {
        let metrics =
            json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
        self.call("Page.navigate", json!({"url": url}));
        self.wait("document.readyState == 'complete' && !!document.querySelector('h1')");
        self.fits(width);
    }

    fn fits(&mut self, width: u32) {
        // A window that is scrolled has less room than it is wide.
        let wide = self.evaluate("document.documentElement.scrollWidth").as_u64().unwrap();
        assert!(wide <= u64::from(width), "the page is {wide} wide, the window {width}");
    }
}

/// A swarm that takes about ten seconds.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may be over.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

const PLAN: &str = "tasks = 6\n[limits]\ncpus = 0.5\nmemory = \"256M\"\nat_once = 2\n\
    [[campaign]]\ncommand = \"check model --mutant rmdir-errno --budget 5s\"\n\
    vary = { strategy = [\"tour\", \"walk\"] }\n";

#[test]
fn the_page_of_a_swarm_lives_and_stays() {
    let Some(program) = chromium() else {
        println!("SKIP the page of a swarm: no chromium");
        return;
    };
    let dir = scratch();
    std::fs::write(dir.path().join("plan.toml"), PLAN).unwrap();
    let args = ["swarm", "plan.toml", "--out", "swarm", "--listen", "127.0.0.1:0"];
    let mut swarm = command(&args, dir.path());
    let mut swarm = Running(swarm.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap());
    let mut errors = BufReader::new(swarm.0.stderr.take().unwrap());
    let mut line = String::new();
    errors.read_line(&mut line).unwrap();
    let url = line.trim().strip_prefix("page: ").unwrap_or_else(|| panic!("{line:?}")).to_owned();
    // Whoever writes to a pipe that nobody reads waits.
    std::thread::spawn(move || errors.read_to_end(&mut Vec::new()));

    let mut browser = Browser::start(program, &dir.path().join("profile"));
    // The first result makes the page.
    let began = Instant::now();
    loop {
        browser.call("Page.navigate", json!({"url": url}));
        if browser.evaluate("!!document.querySelector('h1')") == true {
            break;
        }
        assert!(began.elapsed() < PATIENCE, "no page on {url}");
        std::thread::sleep(Duration::from_millis(200));
    }
    browser.complaints.clear();
    for width in WIDTHS {
        browser.open(&url, width);
        // A mark that a page that is loaded again would not have: the script exchanges what is in it.
        browser.evaluate("window.mark = document.querySelector('main').innerText; 1");
        browser.wait(
            "window.mark !== undefined && window.mark != document.querySelector('main').innerText",
        );
        browser.wait("document.querySelectorAll('section.card svg').length >= 2");
        browser.wait("!!document.querySelector('details.finding')");
        browser.fits(width);
    }
    // What a person folds or unfolds stays so when the page renews itself.
    browser.evaluate(
        "for (const part of document.querySelectorAll('details.finding')) part.open = !part.open",
    );
    let open = "[...document.querySelectorAll('details.finding')].map((part) => part.open).join()";
    let before = browser.evaluate(open);
    browser.evaluate("window.mark = document.querySelector('main'); 1");
    browser.wait("window.mark != document.querySelector('main')");
    assert_eq!(browser.evaluate(open), before);
    assert_eq!(browser.complaints, Vec::<String>::new());

    assert_eq!(swarm.0.wait().unwrap().code(), Some(1), "it finds the bug");
    // The last state stays in the browser, and the file says how it ended.
    let after = browser.evaluate("document.querySelector('h1').innerText");
    assert!(after.as_str().unwrap().contains("of 6 tasks over"), "{after}");
    browser.complaints.clear();
    let file = format!("file://{}", dir.path().join("swarm/index.html").display());
    for width in WIDTHS {
        browser.open(&file, width);
        let title = browser.evaluate("document.querySelector('h1').innerText");
        assert_eq!(title, "6 of 6 tasks over, 1 finding.");
    }
    assert_eq!(browser.complaints, Vec::<String>::new());
}
