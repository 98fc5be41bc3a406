//! What goes wrong on the way to a server, and on the way back.

use std::io;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use futures_util::stream;
use http_body_util::{BodyExt, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::header::{CONTENT_LENGTH, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::service::Service;
use hyper::{Method, StatusCode};
use s3s::service::S3Service;
use s3s::{Body, HttpResponse};

/// A request, as far as it decides whether it fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// GET, PUT, ...
    pub method: Method,
    /// `/bucket/key`, without the question.
    pub path: String,
    /// What stands behind the question mark.
    pub query: String,
    /// The length of its body, as it says; 0 if it does not say.
    pub body_bytes: u64,
}

/// What becomes of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HttpFault {
    /// The server answers so, without doing anything: a status and the code of S3, for instance 503 and `SlowDown`.
    Answers(u16, &'static str),
    /// The same, and it asks to be left alone for so many seconds.
    AsksToWait(u16, &'static str, u64),
    /// The connection ends before anything is done.
    Closes,
    /// It is done, and the connection ends before the answer.
    AnswerLost,
    /// Half of the answer's body comes, then the connection ends.
    CutShort,
    /// Nothing comes, ever.
    Stalls,
}

/// Decides on each request; none lets it through.
pub type Hook = dyn Fn(&Request) -> Option<HttpFault> + Send + Sync;

/// A server behind a hook.
pub(super) struct Hooked {
    pub service: S3Service,
    pub hook: Option<Arc<Hook>>,
}

impl Service<hyper::Request<Incoming>> for Hooked {
    type Response = HttpResponse;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<HttpResponse>>;

    fn call(&self, request: hyper::Request<Incoming>) -> Self::Future {
        let seen = Request {
            method: request.method().clone(),
            path: request.uri().path().to_owned(),
            query: request.uri().query().unwrap_or_default().to_owned(),
            body_bytes: length(&request).unwrap_or(0),
        };
        let fault = self.hook.as_ref().and_then(|hook| hook(&seen));
        let service = self.service.clone();
        Box::pin(async move {
            let done = async move {
                Service::call(&service, request).await.map_err(|error| io::Error::other(format!("{error:?}")))
            };
            match fault {
                None => done.await,
                Some(HttpFault::Answers(status, code)) => refusal(status, code, None),
                Some(HttpFault::AsksToWait(status, code, seconds)) => refusal(status, code, Some(seconds)),
                Some(HttpFault::Closes) => Err(io::ErrorKind::ConnectionReset.into()),
                Some(HttpFault::AnswerLost) => {
                    done.await?;
                    Err(io::ErrorKind::ConnectionReset.into())
                }
                Some(HttpFault::CutShort) => cut_short(done.await?).await,
                Some(HttpFault::Stalls) => std::future::pending().await,
            }
        })
    }
}

fn length(request: &hyper::Request<Incoming>) -> Option<u64> {
    request.headers().get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

fn refusal(status: u16, code: &str, wait_s: Option<u64>) -> io::Result<HttpResponse> {
    let text = format!("<?xml version=\"1.0\"?><Error><Code>{code}</Code><Message>by plan</Message></Error>");
    let mut response = HttpResponse::new(Body::from(Bytes::from(text)));
    *response.status_mut() = StatusCode::from_u16(status).map_err(io::Error::other)?;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    if let Some(seconds) = wait_s {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    Ok(response)
}

async fn cut_short(response: HttpResponse) -> io::Result<HttpResponse> {
    let (head, body) = response.into_parts();
    let whole = body.collect().await.map_err(|error| io::Error::other(error.to_string()))?.to_bytes();
    let half = whole.slice(..whole.len() / 2);
    let frames = [Ok(Frame::data(half)), Err(io::Error::from(io::ErrorKind::ConnectionReset))];
    let body = StreamBody::new(stream::iter(frames));
    Ok(HttpResponse::from_parts(head, Body::http_body_unsync(body)))
}
