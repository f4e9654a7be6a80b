//! Tests of lost events: the watchdog finds each waiting object once, and is idle otherwise.

mod simulated {
    use std::time::Duration;

    use pilothouse_runtime::Handle;
    use pilothouse_simulator::{Fault, Rule};
    use serde_json::json;

    use crate::stage::{Stage, hostile, unhurried};

    fn stuck(stage: &Stage) -> Option<u64> {
        stage.host.handle().map(Handle::stuck)
    }

    fn says(text: &str) -> serde_json::Value {
        json!({"behaviour": "config-map", "text": text})
    }

    fn text(stage: &Stage) -> Option<serde_json::Value> {
        Some(stage.find("ConfigMap", "it")?["data"]["text"].clone())
    }

    #[tokio::test(start_paused = true)]
    async fn a_server_that_answers_nothing_or_429_is_asked_again() {
        let never = || Fault::Delay(Duration::from_hours(24));
        let busy = || Fault::Status {
            code: 429,
            retry_after: Some(1),
        };
        // A request is given up after half a minute, also the list without which nothing begins.
        for (what, fault) in [("silence", never as fn() -> Fault), ("429", busy)] {
            let mut stage = Stage::empty(unhurried());
            let rule = |verb| Rule::new(fault()).verbs(&[verb]).resource("configmaps").times(2);
            stage.simulator().faults().add(rule("list"));
            stage.simulator().faults().add(rule("watch"));
            let specs = vec![stage.host.spec("hostile").unwrap()];
            stage.start(specs).await;
            stage.minute().await;
            stage.minute().await;
            stage.host.settled().await.unwrap();
            stage.simulator().faults().add(rule("patch"));
            stage.create(&hostile("it", &says("one"))).await;
            for _ in 0..4 {
                stage.minute().await;
            }
            assert_eq!(text(&stage), Some(json!("one")), "{what}");
            assert!(
                stage.is_reconciled("Hostile", "it"),
                "{what}: {:?}",
                stage.reconciled("Hostile", "it")
            );
            assert_eq!(stuck(&stage), Some(0), "{what}");
            stage.stop().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_no_watch_shows_is_resolved_by_the_watchdog() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        stage.create(&hostile("it", &says("one"))).await;
        let made = stage.until(|stage| stage.is_reconciled("Hostile", "it").then_some(()));
        assert!(made.await.is_some());
        stage.host.settled().await.unwrap();

        let faults = stage.simulator().faults();
        let lost = Rule::new(Fault::LoseEvents { events: 1 }).resource("configmaps");
        faults.add(lost.times(1));
        stage.simulator().cut_watches("", "configmaps");
        let watched = stage.until(|stage| (stage.simulator().faults().injected() > 0).then_some(()));
        assert!(watched.await.is_some());
        stage.patch_hostile("it", &json!({"spec": says("two")})).await;
        assert!(
            stage
                .until(|stage| (text(stage)? == "two").then_some(()))
                .await
                .is_some()
        );
        // What it writes now it would not see, so it does not run before it has seen what it wrote.
        stage.patch_hostile("it", &json!({"spec": says("three")})).await;
        let mark = stage.mark();
        tokio::time::sleep(Duration::from_mins(4)).await;
        assert_eq!((text(&stage), stuck(&stage)), (Some(json!("two")), Some(0)));
        tokio::time::sleep(Duration::from_mins(3)).await;
        assert_eq!((text(&stage), stuck(&stage)), (Some(json!("three")), Some(1)));
        let told = stage.lines(&["ERROR", "bug of the host", "default/it", "ConfigMap default/it"]);
        assert_eq!(told.len(), 1, "{told:?}");
        let requests = stage.cluster.requests_since(mark).unwrap();
        let looks = requests
            .iter()
            .filter(|request| request.verb == "get" && request.resource == "configmaps");
        assert_eq!(looks.count(), 1, "it is looked at once");
        stage.stop().await;
    }

    #[tokio::test(start_paused = true)]
    async fn while_nothing_is_stuck_the_watchdog_asks_nothing() {
        let stage = Stage::with(&["hostile"], unhurried()).await;
        for index in 0..20 {
            stage.create(&hostile(&format!("o{index}"), &says("one"))).await;
        }
        let made = stage.until(|stage| {
            (0..20)
                .all(|index| stage.is_reconciled("Hostile", &format!("o{index}")))
                .then_some(())
        });
        assert!(made.await.is_some());
        stage.host.settled().await.unwrap();
        stage.minute().await;
        let mark = stage.mark();
        tokio::time::sleep(Duration::from_mins(50)).await;
        let requests = stage.cluster.requests_since(mark).unwrap();
        assert!(requests.iter().all(|request| request.verb == "watch"), "{requests:?}");
        assert_eq!(stuck(&stage), Some(0));
        stage.stop().await;
    }
}
