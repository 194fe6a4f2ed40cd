//! Resolves names to addresses, and filters out those that are not public.
//!
//! The filter is in the resolver because it cannot be bypassed here: connections are made only to the addresses that
//! the resolver returns.

use std::{
    error::Error,
    io,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use async_trait::async_trait;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};

use crate::{address::not_public, policy::Reach};

/// Finds the addresses of a name.
#[async_trait]
pub trait Resolver: Send + Sync {
    /// The addresses of `host`, best first.
    ///
    /// # Errors
    /// There is no address, or the lookup failed.
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's resolver.
pub(crate) struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, host: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((host, 0)).await?.map(|address| address.ip()).collect())
    }
}

/// Resolves a name to its addresses within `reach`.
pub(crate) struct WithinReach {
    pub(crate) resolver: Arc<dyn Resolver>,
    pub(crate) reach: Reach,
}

impl Resolve for WithinReach {
    fn resolve(&self, name: Name) -> Resolving {
        let (resolver, reach) = (self.resolver.clone(), self.reach);
        Box::pin(async move {
            let mut found = resolver.resolve(name.as_str()).await?;
            if reach == Reach::Public
                && let Some(first) = found.first().copied()
            {
                found.retain(|address| not_public(*address).is_none());
                if found.is_empty() {
                    return Err(NotPublic(first).into());
                }
            }
            // Port 0 stands for the port of the requested address.
            let addresses: Addrs = Box::new(found.into_iter().map(|address| SocketAddr::new(address, 0)));
            Ok(addresses)
        })
    }
}

/// The name resolves only to addresses that are not public; this is one of them.
#[derive(Debug, thiserror::Error)]
#[error("it resolves to {0}, {what}", what = not_public(*.0).unwrap_or("a public address"))]
pub(crate) struct NotPublic(IpAddr);

impl NotPublic {
    /// Finds the refusal among the causes of an error.
    pub(crate) fn cause_of<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a Self> {
        std::iter::successors(Some(error), |error| (*error).source()).find_map(|cause| cause.downcast_ref())
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Mutex};

    use super::*;

    /// A resolver that returns the next item at each call.
    struct Changing(Mutex<VecDeque<Vec<&'static str>>>);

    #[async_trait]
    impl Resolver for Changing {
        async fn resolve(&self, _: &str) -> io::Result<Vec<IpAddr>> {
            let next = self.0.lock().unwrap().pop_front().unwrap_or_default();
            Ok(next.into_iter().map(|address| address.parse().unwrap()).collect())
        }
    }

    #[tokio::test]
    async fn each_answer_is_looked_at_and_of_it_only_public_addresses_remain() {
        let answers = [
            vec!["1.1.1.1"],
            vec!["127.0.0.1"],
            vec!["169.254.169.254", "8.8.8.8", "::ffff:8.8.4.4", "2606:4700::1111", "fd00:ec2::254"],
            vec!["::ffff:10.0.0.1", "64:ff9b::a00:1"],
            vec![],
        ];
        let resolver = WithinReach { resolver: Arc::new(Changing(Mutex::new(answers.into()))), reach: Reach::Public };
        let mut seen = Vec::new();
        for _ in 0..5 {
            seen.push(match resolver.resolve("rebinding.example".parse().unwrap()).await {
                Ok(found) => found.map(|address| address.ip().to_string()).collect::<Vec<_>>().join(" "),
                Err(error) => NotPublic::cause_of(error.as_ref()).unwrap().to_string(),
            });
        }
        assert_eq!(
            seen,
            [
                "1.1.1.1",
                "it resolves to 127.0.0.1, a loopback address",
                "8.8.8.8 2606:4700::1111",
                "it resolves to ::ffff:10.0.0.1, an IPv4-mapped address",
                "",
            ]
        );
    }
}
