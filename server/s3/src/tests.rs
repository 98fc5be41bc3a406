//! One suite for every store, and what only a store behind a network can do wrong.
#![allow(clippy::unwrap_used, reason = "tests")]

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use aws_credential_types::provider::future::ProvideCredentials as ProvidedFuture;
use aws_sdk_s3::config::{Credentials as Keys, ProvideCredentials};
use bytes::Bytes;
use sha2::{Digest, Sha256};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::local::{Credentials, Hook, HttpFault, LocalS3, Request};
use crate::{Asked, Below, Class, Creation, Fault, Faulty, Limits, Location, Memory, ObjectStore, S3, Source};

const SECRET: &str = "nobody-is-told-this";

/// A real server in this process, and a door to it.
struct Real {
    _directory: TempDir,
    server: LocalS3,
    location: Location,
}

impl Real {
    async fn serve(hook: Option<Arc<Hook>>) -> Real {
        let directory = tempfile::tempdir().unwrap();
        LocalS3::make_bucket(directory.path(), "backups").unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let credentials = Credentials { access_key: "key".to_owned(), secret_key: SECRET.to_owned() };
        let server = LocalS3::serve(listener, directory.path(), &credentials, hook).unwrap();
        let location = Location {
            endpoint: Some(server.endpoint()),
            region: "us-east-1".to_owned(),
            bucket: "backups".to_owned(),
            prefix: "some/where".to_owned(),
            path_style: true,
        };
        Real { _directory: directory, server, location }
    }

    fn door(&self, limits: Limits) -> S3 {
        S3::new(self.location.clone(), limits, Keys::new("key", SECRET, None, None, "tests")).unwrap()
    }
}

/// Little patience, small parts.
fn limits() -> Limits {
    Limits {
        pause: Duration::from_millis(1),
        pause_max: Duration::from_millis(20),
        part_bytes: 5 << 20,
        ..Limits::default()
    }
}

fn noise(bytes: usize) -> Bytes {
    let mut state = bytes as u64 | 1;
    let next = |_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    };
    (0..bytes).map(next).collect()
}

/// What every store does alike.
async fn behaves(store: &dyn ObjectStore) {
    assert_eq!(store.find("a/none").await.unwrap(), None);
    assert_eq!(store.head("a/none").await.unwrap(), None);
    let body = noise(100_000);
    assert_eq!(store.create("a/b", body.clone()).await.unwrap(), Creation::New);
    assert_eq!(store.create("a/b", noise(3)).await.unwrap(), Creation::AlreadyThere);
    let got = store.get("a/b", None).await.unwrap();
    assert_eq!((&got.bytes, got.whole_bytes), (&body, 100_000));
    let part = store.get("a/b", Some(99_000..100_000)).await.unwrap();
    assert_eq!((part.bytes, part.whole_bytes), (body.slice(99_000..), 100_000));
    let beyond = store.get("a/b", Some(99_000..100_001)).await.unwrap_err();
    assert_eq!(beyond.class, Class::Damaged, "{beyond}");
    let meta = store.head("a/b").await.unwrap().unwrap();
    assert_eq!((meta.bytes, &meta.tag), (100_000, &got.tag));

    let first = store.replace("index", Bytes::from_static(b"1"), None).await.unwrap();
    let other = store.replace("index", Bytes::from_static(b"2"), None).await.unwrap_err();
    assert!(other.is_conflict() && other.to_string().contains("index"), "{other}");
    let second = store.replace("index", Bytes::from_static(b"3"), Some(&first)).await.unwrap();
    assert!(store.replace("index", Bytes::from_static(b"4"), Some(&first)).await.unwrap_err().is_conflict());
    assert_eq!(store.get("index", None).await.unwrap().tag, second);

    for bytes in [0, 1, (5 << 20) - 1, 5 << 20, (5 << 20) + 1, 13 << 20] {
        let (key, body) = (format!("large/{bytes}"), noise(bytes));
        assert_eq!(store.upload(&key, Arc::new(body.clone())).await.unwrap(), Creation::New, "{key}");
        assert!(store.get(&key, None).await.unwrap().bytes == body, "{key}");
        assert_eq!(store.upload(&key, Arc::new(noise(7))).await.unwrap(), Creation::AlreadyThere, "{key}");
        assert_eq!(store.head(&key).await.unwrap().unwrap().bytes, bytes as u64, "{key}");
    }
    lists(store).await;
    assert_eq!(store.unfinished_uploads("").await.unwrap(), []);
}

async fn lists(store: &dyn ObjectStore) {
    for number in [10, 101, 102] {
        store.create(&format!("log/{number}/x"), Bytes::from_static(b"x")).await.unwrap();
        store.create(&format!("log/{number}/y"), Bytes::from_static(b"yy")).await.unwrap();
    }
    let keys = async |prefix: &str, after: Option<&str>| -> Vec<String> {
        let page = store.list(prefix, after).await.unwrap();
        assert!(!page.more);
        page.objects.into_iter().map(|listed| listed.key).collect()
    };
    assert_eq!(keys("log/10/", None).await, ["log/10/x", "log/10/y"]);
    assert_eq!(keys("log/10/", Some("log/10/x")).await, ["log/10/y"]);
    assert_eq!(keys("log/", Some("log/101/x")).await, ["log/101/y", "log/102/x", "log/102/y"]);
    assert_eq!(store.list_all("log/").await.unwrap().len(), 6);
    store.delete("log/10/x").await.unwrap();
    store.delete("log/10/x").await.unwrap();
    assert_eq!(keys("log/10/", None).await, ["log/10/y"]);
}

#[tokio::test]
async fn memory_behaves() {
    behaves(&Memory::default()).await;
}

#[tokio::test]
async fn a_faulty_store_without_faults_behaves() {
    behaves(&Faulty::new(Arc::new(Memory::default()), |_, _| None)).await;
}

#[tokio::test]
async fn what_is_below_a_prefix_behaves() {
    let whole = Arc::new(Memory::default());
    whole.put("in/sidelong", Bytes::new());
    behaves(&Below::new(whole.clone(), "in/side")).await;
    assert!(whole.head("in/side/index").await.unwrap().is_some());
}

#[tokio::test]
async fn s3_behaves() {
    let real = Real::serve(None).await;
    behaves(&real.door(limits())).await;
}

/// Another server, if one is named: `TREFOIL_S3_ENDPOINT`, with a bucket called `backups`, credentials as usual.
#[tokio::test]
async fn another_s3_behaves() {
    let Ok(endpoint) = std::env::var("TREFOIL_S3_ENDPOINT") else { return };
    let location = Location {
        endpoint: Some(endpoint),
        region: "us-east-1".to_owned(),
        bucket: "backups".to_owned(),
        prefix: format!("suite-{:x}", rand::random::<u64>()),
        path_style: true,
    };
    behaves(&S3::connect(location, limits()).await.unwrap()).await;
}

#[tokio::test]
async fn more_keys_than_fit_a_page_are_all_listed() {
    let store = Memory::default();
    (0..2_500).for_each(|number| store.put(&format!("k/{number:05}"), Bytes::new()));
    let (all, first) = (store.list_all("k/").await, store.list("k/", None).await.unwrap());
    assert_eq!((all.unwrap().len(), first.objects.len(), first.more), (2_500, 1_000, true));
}

impl Memory {
    async fn list_all(&self, prefix: &str) -> crate::Result<Vec<crate::Listed>> {
        crate::store::list_all(self, prefix).await
    }
}

/// Lets the first `times` requests that match fail so.
fn first(times: usize, fault: HttpFault, matches: fn(&Request) -> bool) -> (Arc<Hook>, Arc<AtomicUsize>) {
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let hook = move |request: &Request| {
        let is_one = matches(request) && counted.fetch_add(1, Ordering::Relaxed) < times;
        is_one.then(|| fault.clone())
    };
    (Arc::new(hook), seen)
}

fn is_put(request: &Request) -> bool {
    request.method == "PUT"
}

fn is_get(request: &Request) -> bool {
    request.method == "GET"
}

#[tokio::test]
async fn what_fails_twice_on_the_way_succeeds_the_third_time() {
    let faults = [
        HttpFault::Answers(500, "InternalError"),
        HttpFault::Answers(503, "SlowDown"),
        HttpFault::Answers(400, "ExpiredToken"),
        // Not a sign that an object is there: what was in the way may have been its removal.
        HttpFault::Answers(409, "ConditionalRequestConflict"),
        HttpFault::Closes,
        HttpFault::AnswerLost,
    ];
    for fault in faults {
        let (hook, seen) = first(2, fault.clone(), is_put);
        let real = Real::serve(Some(hook)).await;
        let store = real.door(limits());
        let made = store.create("a", noise(10)).await.unwrap();
        // Our own object of an attempt whose answer was lost: whoever cares compares.
        let is_own = fault == HttpFault::AnswerLost;
        assert_eq!(made == Creation::AlreadyThere, is_own, "{fault:?}");
        assert_eq!(seen.load(Ordering::Relaxed), 3, "{fault:?}");
        assert_eq!(store.get("a", None).await.unwrap().bytes, noise(10), "{fault:?}");
    }
}

#[tokio::test]
async fn a_lost_answer_to_a_replacement_is_found_out() {
    let (hook, _) = first(1, HttpFault::AnswerLost, is_put);
    let real = Real::serve(Some(hook)).await;
    let store = real.door(limits());
    let tag = store.replace("index", noise(20), None).await.unwrap();
    assert_eq!(store.get("index", None).await.unwrap().tag, tag);
}

/// Completes the upload of a large object behind `hook`, and says how that ended.
async fn uploaded(hook: Arc<Hook>) -> crate::Result<Creation> {
    let real = Real::serve(Some(hook)).await;
    let store = real.door(limits());
    let body = noise(6 << 20);
    let made = store.upload("large", Arc::new(body.clone())).await?;
    assert!(store.get("large", None).await.unwrap().bytes == body);
    Ok(made)
}

fn completes(request: &Request) -> bool {
    request.method == "POST" && request.query.contains("uploadId=")
}

#[tokio::test]
async fn a_lost_answer_to_a_large_object_is_found_out() {
    let (hook, seen) = first(1, HttpFault::AnswerLost, completes);
    assert_eq!(uploaded(hook).await.unwrap(), Creation::AlreadyThere);
    assert_eq!(seen.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn a_large_object_whose_parts_are_gone_is_not_taken_for_made() {
    let (hook, _) = first(usize::MAX, HttpFault::Answers(404, "NoSuchUpload"), completes);
    let error = uploaded(hook).await.unwrap_err();
    assert!(error.class == Class::Retry && error.to_string().contains("NoSuchUpload"), "{error}");
}

#[tokio::test]
async fn a_store_that_asks_to_wait_is_given_the_time() {
    let (hook, _) = first(1, HttpFault::AsksToWait(503, "SlowDown", 1), is_put);
    let real = Real::serve(Some(hook)).await;
    let begun = tokio::time::Instant::now();
    real.door(limits()).create("a", noise(10)).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn an_answer_that_is_cut_short_is_asked_for_again() {
    let (hook, seen) = first(2, HttpFault::CutShort, is_get);
    let real = Real::serve(Some(hook)).await;
    let store = real.door(limits());
    store.create("a", noise(1 << 20)).await.unwrap();
    assert!(store.get("a", Some(10..900_000)).await.unwrap().bytes == noise(1 << 20).slice(10..900_000));
    assert_eq!(seen.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn a_server_that_never_answers_is_given_up() {
    let (hook, _) = first(usize::MAX, HttpFault::Stalls, is_get);
    let real = Real::serve(Some(hook)).await;
    let store = real.door(Limits { attempt: Duration::from_millis(50), attempts: 2, ..limits() });
    let error = store.list("", None).await.unwrap_err();
    assert!(error.class == Class::Retry && error.to_string().contains("no answer within"), "{error}");
}

#[tokio::test]
async fn a_role_that_may_not_delete_is_told_so_at_once() {
    let (hook, seen) = first(usize::MAX, HttpFault::Answers(403, "AccessDenied"), |asked| asked.method == "DELETE");
    let real = Real::serve(Some(hook)).await;
    let error = real.door(limits()).delete("a/b").await.unwrap_err();
    assert_eq!((error.class, seen.load(Ordering::Relaxed)), (Class::Denied, 1));
    let text = error.to_string();
    assert!(text.contains("DELETE s3://backups/some/where/a/b") && text.contains("403 AccessDenied"), "{text}");
}

#[tokio::test]
async fn an_unreachable_endpoint_is_named_and_no_secret_is() {
    let real = Real::serve(None).await;
    let location = Location { endpoint: Some("http://127.0.0.1:1".to_owned()), ..real.location.clone() };
    let keys = Keys::new("key", SECRET, None, None, "tests");
    let store = S3::new(location, Limits { attempts: 2, ..limits() }, keys).unwrap();
    let error = store.get("a", Some(0..1)).await.unwrap_err();
    assert_eq!(error.class, Class::Retry, "{error}");
    assert!(!format!("{error} {error:?}").contains(SECRET) && error.to_string().contains("s3://backups"), "{error}");
    drop(real.server);
}

/// After a change of a library 5,000 ms were taken for 5,000 s: 83 minutes between two attempts. Ours are typed, bounded, and
/// what a store asks for is in seconds.
#[test]
fn b083_pauses_between_attempts_are_as_long_as_they_say() {
    let limits = Limits::default();
    let pauses: Vec<Duration> = (1..=12).map(|attempt| limits.pause_before(attempt, 1.0)).collect();
    assert_eq!((pauses[0], pauses[1], pauses[11]), (limits.pause, 2 * limits.pause, limits.pause_max));
    assert_eq!(limits.pause_before(1, 0.0), limits.pause / 2);
    assert_eq!(limits.pause_before(u32::MAX, 1.0), limits.pause_max);
}

/// The tag of an object in parts is no hash of it and differs with the size of the parts: whoever compared by it uploaded
/// everything again, or said that all was well. Here nothing is compared by it, and what is there stays.
#[tokio::test]
async fn b085_parts_of_any_size_make_the_same_object() {
    let real = Real::serve(None).await;
    let body = noise((10 << 20) + 1);
    let store = real.door(limits());
    assert_eq!(store.upload("large", Arc::new(body.clone())).await.unwrap(), Creation::New);
    let tag = store.head("large").await.unwrap().unwrap().tag;
    let other = real.door(Limits { part_bytes: 7 << 20, ..limits() });
    assert_eq!(other.upload("large", Arc::new(body.clone())).await.unwrap(), Creation::AlreadyThere);
    let got = other.get("large", None).await.unwrap();
    assert!(got.bytes == body && got.tag == tag);
}

/// Something that is not what it was when its hash was taken.
struct Rotten(Bytes);

impl Source for Rotten {
    fn bytes(&self) -> u64 {
        self.0.len() as u64
    }

    fn read(&self, range: std::ops::Range<u64>) -> trefoil::Result<Bytes> {
        self.0.read(range)
    }

    fn sha256(&self) -> Option<[u8; 32]> {
        let mut before = self.0.to_vec();
        before[17] ^= 1;
        Some(Sha256::digest(before).into())
    }
}

/// What was damaged between its sealing and its upload must not lie there under the hash that it had: neither in one piece
/// nor in parts, and nothing is left of the attempt.
#[tokio::test]
async fn what_is_not_what_its_hash_says_is_not_made() {
    let real = Real::serve(None).await;
    let doors: [Arc<dyn ObjectStore>; 2] = [Arc::new(Memory::default()), Arc::new(real.door(limits()))];
    for store in doors {
        for bytes in [1_000, 6 << 20, 13 << 20] {
            let error = store.upload("obj/x", Arc::new(Rotten(noise(bytes)))).await.unwrap_err();
            assert_eq!(error.class, Class::Damaged, "{error}");
            assert_eq!(store.head("obj/x").await.unwrap(), None);
            assert_eq!(store.unfinished_uploads("").await.unwrap(), []);
        }
    }
}

/// A provider answered without credentials and without an error, and requests were signed with nothing.
#[tokio::test]
async fn b086_no_request_is_signed_without_credentials() {
    let (hook, seen) = first(0, HttpFault::Closes, |_| true);
    let real = Real::serve(Some(hook)).await;
    let expired = Keys::new("key", SECRET, None, Some(std::time::UNIX_EPOCH), "tests");
    for keys in [expired, Keys::new("", "", None, None, "tests")] {
        let store = S3::new(real.location.clone(), Limits { attempts: 2, ..limits() }, keys).unwrap();
        let error = store.get("a", Some(0..1)).await.unwrap_err();
        assert!(error.class == Class::Retry && error.to_string().contains("credentials that were provided"), "{error}");
    }
    assert_eq!(seen.load(Ordering::Relaxed), 0, "a request was made");
}

/// Counts how often it is asked.
#[derive(Debug, Clone, Default)]
struct Provider(Arc<AtomicUsize>);

impl ProvideCredentials for Provider {
    fn provide_credentials<'a>(&'a self) -> ProvidedFuture<'a>
    where
        Self: 'a,
    {
        self.0.fetch_add(1, Ordering::Relaxed);
        ProvidedFuture::ready(Ok(Keys::new("key", SECRET, None, None, "tests")))
    }
}

/// A store that says that credentials have expired is believed: they are not held until they say so themselves.
#[tokio::test]
async fn expired_credentials_are_let_go_and_others_fetched_at_once() {
    let (hook, _) = first(2, HttpFault::Answers(400, "ExpiredToken"), |request| request.path.ends_with("expired"));
    let real = Real::serve(Some(hook)).await;
    let provider = Provider::default();
    let store = S3::new(real.location.clone(), limits(), provider.clone()).unwrap();
    for _ in 0..10 {
        assert_eq!(store.head("a").await.unwrap(), None);
    }
    assert_eq!(provider.0.load(Ordering::Relaxed), 1, "asked once for all");
    assert_eq!(store.create("expired", Bytes::new()).await.unwrap(), Creation::New);
    assert_eq!(provider.0.load(Ordering::Relaxed), 3, "asked again after each refusal");
}

/// Where everything fails a request is not made five times: all retries together stay within a budget, and are counted.
#[tokio::test]
async fn retries_of_all_requests_together_have_a_budget() {
    let (hook, _) = first(usize::MAX, HttpFault::Answers(503, "SlowDown"), |_| true);
    let real = Real::serve(Some(hook)).await;
    let store = real.door(limits());
    for _ in 0..100 {
        assert_eq!(store.head("a").await.unwrap_err().class, Class::Retry);
    }
    let (_, asked) = store.traffic().all().find(|(call, _)| *call == "HEAD").unwrap();
    assert_eq!((asked.requests, asked.failures), (100 + asked.retries, 100 + asked.retries));
    assert!((20..=40).contains(&asked.retries), "{asked:?}");
    let error = store.head("a").await.unwrap_err().to_string();
    assert!(error.contains("it was not tried again"), "{error}");
}

#[tokio::test]
async fn requests_and_their_bytes_are_counted_by_kind() {
    let real = Real::serve(None).await;
    let store = real.door(limits());
    store.create("a", noise(1_000)).await.unwrap();
    assert_eq!(store.create("a", noise(1_000)).await.unwrap(), Creation::AlreadyThere);
    store.get("a", Some(0..300)).await.unwrap();
    let of = |kind| store.traffic().all().find(|(call, _)| *call == kind).unwrap().1;
    assert_eq!(of("PUT"), Asked { requests: 2, bytes: 1_000, ..Asked::default() });
    assert_eq!(of("GET"), Asked { requests: 1, bytes: 300, ..Asked::default() });
    assert_eq!(of("DELETE"), Asked::default());
}

#[tokio::test]
async fn a_faulty_store_fails_as_it_is_told() {
    let store = Faulty::new(Arc::new(Memory::default()), |_, key| match key {
        "lost" => Some(Fault::AnswerLost),
        "denied" => Some(Fault::Denied),
        "away" => Some(Fault::Unreachable),
        _ => None,
    });
    let class = async |key| store.create(key, Bytes::new()).await.unwrap_err().class;
    assert_eq!((class("lost").await, class("denied").await), (Class::Retry, Class::Denied));
    assert_eq!(class("away").await, Class::Retry);
    assert_eq!(store.list_all_keys().await, ["lost"]);
}

impl Faulty {
    async fn list_all_keys(&self) -> Vec<String> {
        crate::store::list_all(self, "").await.unwrap().into_iter().map(|listed| listed.key).collect()
    }
}

#[test]
fn locations_that_no_store_would_take_are_refused() {
    let fine = Location {
        endpoint: Some("https://s3.example:9000".to_owned()),
        region: "eu-central-1".to_owned(),
        bucket: "my-backups".to_owned(),
        prefix: "a/b_c".to_owned(),
        path_style: false,
    };
    fine.check().unwrap();
    let wrong = [
        Location { bucket: "ab".to_owned(), ..fine.clone() },
        Location { bucket: "a/b".to_owned(), ..fine.clone() },
        Location { prefix: "/a".to_owned(), ..fine.clone() },
        Location { prefix: "a/../b".to_owned(), ..fine.clone() },
        Location { prefix: "a//b".to_owned(), ..fine.clone() },
        Location { region: String::new(), ..fine.clone() },
        Location { endpoint: Some("s3.example".to_owned()), ..fine.clone() },
        Location { endpoint: Some("http://user:word@s3.example".to_owned()), ..fine.clone() },
    ];
    for location in wrong {
        assert_eq!(location.check().unwrap_err().class, Class::Invalid, "{location:?}");
    }
}
