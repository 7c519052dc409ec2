//! The page in a real browser. `tests/page.sh` runs it, with Chromium and its driver.

#![allow(
    clippy::arithmetic_side_effects,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::unwrap_used,
    reason = "a test may fail"
)]

mod harness;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use actix_circuit_breaker::{Admin, Breaker, Breakers, CircuitState};
use actix_web::dev::ServerHandle;
use actix_web::{App, HttpServer};
use fantoccini::elements::Element;
use fantoccini::{Client, ClientBuilder, Locator};
use harness::*;
use hyper_util::client::legacy::connect::HttpConnector;
use serde_json::{Value, json};
use tokio::time::sleep;

/// A name that is a script where it is not put in as text.
const ODD: &str = "<img src=x onerror=\"window.broken=1\">";

async fn browser(dark: bool) -> Client {
    let driver = std::env::var("PAGE_DRIVER").expect("run it by tests/page.sh");
    let scheme = u8::from(!dark);
    let capabilities = json!({
        "goog:chromeOptions": {
            "args": [
                "--headless=new",
                "--no-sandbox",
                "--disable-dev-shm-usage",
                "--disable-gpu",
                "--window-size=1200,860",
                format!("--blink-settings=preferredColorScheme={scheme}"),
            ],
        },
        "goog:loggingPrefs": { "browser": "ALL" },
    });
    let Value::Object(capabilities) = capabilities else {
        unreachable!()
    };
    ClientBuilder::new(HttpConnector::new())
        .capabilities(capabilities)
        .connect(&driver)
        .await
        .unwrap()
}

fn serve(admin: &Admin, address: &str) -> (SocketAddr, ServerHandle) {
    let admin = admin.clone();
    let server = HttpServer::new(move || App::new().service(admin.scope("/breakers")))
        .workers(1)
        .disable_signals()
        .bind(address)
        .unwrap();
    let address = server.addrs()[0];
    let server = server.run();
    let handle = server.handle();
    actix::spawn(server);
    (address, handle)
}

async fn picture(client: &Client, name: &str) {
    let target = std::env::var_os("PAGE_PICTURES").map_or_else(|| "target".into(), PathBuf::from);
    let picture = client.screenshot().await.unwrap();
    std::fs::create_dir_all(&target).unwrap();
    std::fs::write(target.join(name), picture).unwrap();
}

async fn run(client: &Client, script: &str) -> Value {
    client.execute(script, Vec::new()).await.unwrap()
}

/// Waits until a script says true.
async fn until(client: &Client, script: &str) {
    for _ in 0..300 {
        if run(client, &format!("return !!({script})")).await == true {
            return;
        }
        sleep(Duration::from_millis(100)).await;
    }
    let text = run(client, "return document.body.innerText").await;
    panic!("never true: {script}\n{text}");
}

/// The text of the row of a breaker.
fn row(name: &str) -> String {
    format!("document.querySelector('#rows > li[data-breaker=\"{name}\"]')")
}

async fn until_row_says(client: &Client, name: &str, text: &str) {
    let row = row(name);
    until(
        client,
        &format!("{row} && {row}.innerText.includes({text:?})"),
    )
    .await;
}

async fn find(client: &Client, css: &str) -> Element {
    client.find(Locator::Css(css)).await.unwrap()
}

/// Gives an order by the dialog, with the keyboard alone.
async fn order(client: &Client, name: &str, order: &str, reason: &str, ttl: &str) {
    run(
        client,
        &format!("{}.querySelector('button').focus()", row(name)),
    )
    .await;
    let focused = client.active_element().await.unwrap();
    focused.send_keys("\u{e007}").await.unwrap();
    until(client, "document.getElementById('dialog').open").await;
    let select = find(client, "#order").await;
    select.select_by_value(order).await.unwrap();
    find(client, "#reason")
        .await
        .send_keys(reason)
        .await
        .unwrap();
    if !ttl.is_empty() {
        find(client, "#ttl").await.send_keys(ttl).await.unwrap();
    }
    picture(client, &format!("admin-{order}.png")).await;
    let reason = find(client, "#reason").await;
    reason.send_keys("\u{e007}").await.unwrap();
    until(client, "!document.getElementById('dialog').open").await;
}

async fn traffic(breaker: Breaker) {
    loop {
        let result = if fastrand::u8(..) < 20 {
            Err("down")
        } else {
            Ok(())
        };
        drop(breaker.call(async { result }).await);
        sleep(Duration::from_millis(fastrand::u64(10..40))).await;
    }
}

#[actix::test]
#[ignore = "needs a browser: tests/page.sh"]
async fn the_page_shows_a_trip_takes_orders_and_says_when_the_server_is_gone() {
    let breakers = Breakers::start();
    let rated = || rate(0.9, 50, actix_circuit_breaker::Window::Calls(100));
    for name in ["billing", "catalogue", "mail", "search"] {
        let breaker = breakers.create(name, rated().build().unwrap()).unwrap();
        actix::spawn(traffic(breaker));
    }
    let config = consecutive(3).break_duration(Duration::from_secs(40));
    let payments = breakers
        .create("payments", config.build().unwrap())
        .unwrap();
    breakers.create(ODD, rated().build().unwrap()).unwrap();
    let shadow = consecutive(3).enforcement(0.0).build().unwrap();
    let newcomer = breakers.create("newcomer", shadow.clone()).unwrap();
    let hosts = breakers
        .family("hosts", consecutive(1).build().unwrap())
        .unwrap();
    let admin = Admin::new(breakers.clone()).authorize(|_, command| {
        assert_ne!(command.breaker(), "mail", "mail is not to be touched");
        Ok("ann".to_owned())
    });
    let down = hosts.call("down.example", async { Err::<(), _>("down") });
    drop(down.await);
    let (address, server) = serve(&admin, "127.0.0.1:0");
    let light = browser(false).await;
    let dark = browser(true).await;
    for client in [&light, &dark] {
        // Without the slash at the end, too.
        client
            .goto(&format!("http://{address}/breakers"))
            .await
            .unwrap();
        until_row_says(client, "payments", "closed").await;
        until_row_says(client, "payments", "no break seen").await;
        until(client, "document.getElementById('lost').hidden").await;
    }
    let scheme = "return matchMedia('(prefers-color-scheme: dark)').matches";
    assert_eq!(run(&light, scheme).await, false);
    assert_eq!(run(&dark, scheme).await, true);
    until(&light, "document.body.innerText.includes('<img src=x')").await;
    assert_eq!(run(&light, "return window.broken || 0").await, 0);

    // A trip is seen.
    for _ in 0..3 {
        drop(payments.call(async { Err::<(), _>("down") }).await);
    }
    assert_eq!(payments.state(), CircuitState::Open);
    for client in [&light, &dark] {
        until_row_says(client, "payments", "tripped: 3 failures").await;
        until_row_says(client, "payments", "probe in").await;
        let announced = "document.getElementById('said').textContent";
        until(client, &format!("{announced}.includes('payments is open')")).await;
    }
    // R37: one that rejects nothing is marked, and so is its part of the line.
    for _ in 0..100 {
        drop(newcomer.call(async { Err::<(), _>("down") }).await);
    }
    for client in [&light, &dark] {
        until_row_says(client, "newcomer", "tripped (simulated): 3 failures").await;
        until_row_says(client, "newcomer", "/s let through").await;
        let line = row("newcomer") + ".querySelector('rect.open.simulated')";
        until(client, &line).await;
    }
    let share = shadow.to_builder().enforcement(0.25).build().unwrap();
    newcomer.reconfigure(share).await.unwrap().unwrap();
    until_row_says(&dark, "newcomer", "25 % enforced").await;
    newcomer.reconfigure(shadow).await.unwrap().unwrap();
    for _ in 0..60 {
        drop(payments.call(async { Ok::<_, &str>(()) }).await);
        sleep(Duration::from_millis(50)).await;
    }

    // Orders, by the keyboard.
    order(&light, "search", "force_open", "index is rebuilt", "10m").await;
    until_row_says(&light, "search", "forced open").await;
    until_row_says(&light, "search", "index is rebuilt (by ann)").await;
    assert_eq!(
        breakers.get("search").unwrap().state(),
        CircuitState::ForcedOpen
    );
    until_row_says(&dark, "search", "ends in").await;
    picture(&light, "admin-light.png").await;
    picture(&dark, "admin-dark.png").await;
    order(&light, "search", "release", "index is there", "").await;
    until_row_says(&light, "search", "closed").await;
    until_row_says(&light, "search", "released: “index is there (by ann)”").await;
    assert_eq!(
        breakers.get("search").unwrap().state(),
        CircuitState::Closed
    );

    // What is refused is said.
    run(
        &light,
        &format!("{}.querySelector('button').click()", row("billing")),
    )
    .await;
    find(&light, "#reason").await.send_keys("r").await.unwrap();
    find(&light, "#ttl").await.send_keys("soon").await.unwrap();
    find(&light, "#send").await.click().await.unwrap();
    until(
        &light,
        "document.getElementById('refused').innerText.includes('`ttl` must be')",
    )
    .await;
    find(&light, "#cancel").await.click().await.unwrap();

    // Filters.
    newcomer.reset().await.unwrap();
    run(&light, "document.activeElement.blur()").await;
    find(&light, "body").await.send_keys("/").await.unwrap();
    let filter = light.active_element().await.unwrap();
    filter.send_keys("PAY").await.unwrap();
    until(
        &light,
        "document.querySelectorAll('#rows > li').length === 1",
    )
    .await;
    until_row_says(&light, "payments", "open").await;
    run(&light, "document.getElementById('q').value = ''").await;
    find(&light, "button[data-state=open]")
        .await
        .click()
        .await
        .unwrap();
    until(
        &light,
        "document.querySelectorAll('#rows > li').length === 1",
    )
    .await;
    find(&light, "button[data-state=open]")
        .await
        .click()
        .await
        .unwrap();
    find(&light, "#family")
        .await
        .select_by_value("hosts")
        .await
        .unwrap();
    until_row_says(&light, "hosts/down.example", "tripped").await;
    find(&light, "#family")
        .await
        .select_by_index(0)
        .await
        .unwrap();
    until_row_says(&light, "payments", "open").await;

    // The server goes and comes back.
    server.stop(false).await;
    for client in [&light, &dark] {
        until(client, "!document.getElementById('lost').hidden").await;
    }
    picture(&dark, "admin-lost.png").await;
    let (_, server) = serve(&admin, &address.to_string());
    for client in [&light, &dark] {
        until(client, "document.getElementById('lost').hidden").await;
        until_row_says(client, "payments", "open").await;
    }
    server.stop(false).await;
    light.close().await.unwrap();
    dark.close().await.unwrap();
}
