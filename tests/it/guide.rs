//! `peerbus guide`: an agent that does what the page says is a peer that answers.

use serde_json::{Value, json};

use crate::support::{Broker, Home, Mcp, eventually};

/// What stands in the page's blocks of code.
fn blocks(page: &str) -> Vec<&str> {
    let lines = page.lines().map(str::trim);
    let all: Vec<_> = lines
        .filter(|line| line.starts_with("peerbus ") || line.starts_with('{'))
        .collect();
    assert!(all.len() > 3, "{page}");
    all
}

#[test]
fn who_does_what_the_guide_says_is_a_peer_that_answers() {
    let home = Home::new();
    let broker = Broker::start(&home);
    let page = home.run(&["guide"]).ok();
    let mut server = None;
    for block in blocks(&page) {
        match block.strip_prefix("peerbus ") {
            Some(words) => {
                let words: Vec<_> = words.split(' ').collect();
                home.run(&words).ok();
            }
            None => server = serde_json::from_str::<Value>(block).ok(),
        }
    }
    // The configuration of a client of MCP, as the page has it.
    let server = server.expect("JSON")["mcpServers"]["peerbus"].take();
    assert_eq!(server["command"], "peerbus");
    let args: Vec<_> = server["args"].as_array().expect("a list").iter().collect();
    let args: Vec<_> = args
        .iter()
        .map(|word| word.as_str().expect("a word"))
        .collect();
    let mut agent = Mcp::spawn(&mut home.peerbus(&args));
    agent.initialize("some-bot");
    let name = agent.call("bus.peers", json!({}))["self"].take();
    let name = name.as_str().expect("a name").to_owned();

    let question = home.peerbus(&["ask", &name, "are you set up?"]);
    let asks = std::thread::spawn(move || {
        let mut question = question;
        question.output().expect("it ends")
    });
    let id = eventually("it has mail", || {
        let mail = agent.call("bus.drain", json!({}));
        let id = mail["messages"][0]["id"].as_str()?.to_owned();
        Some(id)
    });
    agent.call(
        "bus.reply",
        json!({ "msg_id": id, "body": "yes, by the guide" }),
    );
    let output = asks.join().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "yes, by the guide\n"
    );
    let tools = agent.request("tools/list", json!({})).to_string();
    for tool in page.split('`').filter(|word| word.starts_with("bus.")) {
        assert!(tools.contains(&format!("\"{tool}\"")), "{tool} in {tools}");
    }
    agent.close();
    broker.stop();
}
