//! Decides whether an address is on the public internet.
//!
//! The ranges are those of the IANA registries of special-purpose addresses, and a few in which clouds offer services
//! to their own machines. For IPv6 only addresses in 2000::/3 can be public at all, except for the special ranges in
//! it. So an address that contains an IPv4 address (IPv4-mapped, IPv4-compatible, NAT64, 6to4, Teredo) is never public,
//! whatever the inner address is, since a connection would reach the inner one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The ranges of IPv4 that are not public, with their descriptions.
const SPECIAL_V4: &[(Ipv4Addr, u32, &str)] = &[
    (Ipv4Addr::new(0, 0, 0, 0), 8, "an unspecified address"),
    (Ipv4Addr::new(10, 0, 0, 0), 8, "a private address"),
    (Ipv4Addr::new(100, 64, 0, 0), 10, "an address behind carrier-grade NAT"),
    (Ipv4Addr::new(127, 0, 0, 0), 8, "a loopback address"),
    (Ipv4Addr::new(169, 254, 0, 0), 16, "a link-local address, where clouds keep the metadata of a machine"),
    (Ipv4Addr::new(168, 63, 129, 16), 32, "an address at which a cloud serves its machines"),
    (Ipv4Addr::new(172, 16, 0, 0), 12, "a private address"),
    (Ipv4Addr::new(192, 0, 0, 0), 24, "a reserved address"),
    (Ipv4Addr::new(192, 0, 2, 0), 24, "a documentation address"),
    (Ipv4Addr::new(192, 88, 99, 0), 24, "a 6to4 relay"),
    (Ipv4Addr::new(192, 168, 0, 0), 16, "a private address"),
    (Ipv4Addr::new(198, 18, 0, 0), 15, "a benchmarking address"),
    (Ipv4Addr::new(198, 51, 100, 0), 24, "a documentation address"),
    (Ipv4Addr::new(203, 0, 113, 0), 24, "a documentation address"),
    (Ipv4Addr::new(224, 0, 0, 0), 4, "a multicast address"),
    (Ipv4Addr::new(240, 0, 0, 0), 4, "a reserved address"),
];

/// The ranges of IPv6 that are not public, with their descriptions. Addresses in none of them and outside of
/// [`GLOBAL_V6`] are reserved.
const SPECIAL_V6: &[(Ipv6Addr, u32, &str)] = &[
    (Ipv6Addr::UNSPECIFIED, 128, "an unspecified address"),
    (Ipv6Addr::LOCALHOST, 128, "a loopback address"),
    (Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0, 0), 96, "an IPv4-mapped address"),
    (Ipv6Addr::UNSPECIFIED, 96, "an IPv4-compatible address"),
    (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96, "a NAT64 address"),
    (Ipv6Addr::new(0x64, 0xff9b, 1, 0, 0, 0, 0, 0), 48, "a NAT64 address"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 32, "a Teredo address"),
    (Ipv6Addr::new(0x2001, 2, 0, 0, 0, 0, 0, 0), 48, "a benchmarking address"),
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23, "a reserved address"),
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32, "a documentation address"),
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16, "a 6to4 address"),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20, "a documentation address"),
    (Ipv6Addr::new(0xfc00, 0, 0, 0, 0, 0, 0, 0), 7, "a private address"),
    (Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0), 10, "a link-local address"),
    (Ipv6Addr::new(0xfec0, 0, 0, 0, 0, 0, 0, 0), 10, "a private address"),
    (Ipv6Addr::new(0xff00, 0, 0, 0, 0, 0, 0, 0), 8, "a multicast address"),
];

/// The only range of IPv6 whose addresses are assigned for the public internet.
const GLOBAL_V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);

/// The description of an address that is not public, as words that follow "it is"; none for a public one.
pub(crate) fn not_public(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(address) => {
            SPECIAL_V4.iter().find(|(net, length, _)| within_v4(address, *net, *length)).map(|(_, _, what)| *what)
        }
        IpAddr::V6(address) => {
            let special = SPECIAL_V6.iter().find(|(net, length, _)| within_v6(address, *net, *length));
            let (net, length) = GLOBAL_V6;
            match special {
                Some((_, _, what)) => Some(what),
                None if within_v6(address, net, length) => None,
                None => Some("a reserved address"),
            }
        }
    }
}

/// Whether the first `length` bits are equal; `length` is 1 to 32.
fn within_v4(address: Ipv4Addr, net: Ipv4Addr, length: u32) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (Ipv4Addr::BITS - length) == 0
}

/// Whether the first `length` bits are equal; `length` is 1 to 128.
fn within_v6(address: Ipv6Addr, net: Ipv6Addr, length: u32) -> bool {
    (address.to_bits() ^ net.to_bits()) >> (Ipv6Addr::BITS - length) == 0
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn what(address: &str) -> Option<&'static str> {
        not_public(address.parse().unwrap())
    }

    #[test]
    fn the_public_internet_is_public() {
        for address in [
            "1.1.1.1",
            "8.8.8.8",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.167.255.255",
            "192.169.0.0",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::200e",
            "2001:4860:4860::8888",
            "2620:fe::fe",
        ] {
            assert_eq!(what(address), None, "{address}");
        }
    }

    #[test]
    fn what_is_special_is_not_public_and_is_named() {
        for (address, expected) in [
            ("0.0.0.0", "unspecified"),
            ("0.1.2.3", "unspecified"),
            ("10.0.0.1", "private"),
            ("100.64.0.1", "carrier-grade"),
            ("100.100.100.200", "carrier-grade"),
            ("127.0.0.1", "loopback"),
            ("127.255.255.254", "loopback"),
            ("168.63.129.16", "cloud"),
            ("169.254.169.254", "metadata"),
            ("172.16.0.1", "private"),
            ("172.31.255.255", "private"),
            ("192.0.0.192", "reserved"),
            ("192.0.2.1", "documentation"),
            ("192.88.99.1", "6to4"),
            ("192.168.1.1", "private"),
            ("198.18.0.1", "benchmarking"),
            ("198.19.255.255", "benchmarking"),
            ("198.51.100.7", "documentation"),
            ("203.0.113.9", "documentation"),
            ("224.0.0.1", "multicast"),
            ("239.255.255.255", "multicast"),
            ("240.0.0.1", "reserved"),
            ("255.255.255.255", "reserved"),
            ("::", "unspecified"),
            ("::1", "loopback"),
            ("::8.8.8.8", "IPv4-compatible"),
            ("::ffff:8.8.8.8", "IPv4-mapped"),
            ("::ffff:169.254.169.254", "IPv4-mapped"),
            ("::ffff:0:8.8.8.8", "reserved"),
            ("64:ff9b::8.8.8.8", "NAT64"),
            ("64:ff9b:1::a00:1", "NAT64"),
            ("100::1", "reserved"),
            ("2001::1", "Teredo"),
            ("2001:2::1", "benchmarking"),
            ("2001:10::1", "reserved"),
            ("2001:20::1", "reserved"),
            ("2001:db8::1", "documentation"),
            ("2002:808:808::1", "6to4"),
            ("3fff::1", "documentation"),
            ("4000::1", "reserved"),
            ("5f00::1", "reserved"),
            ("fc00::1", "private"),
            ("fd00:ec2::254", "private"),
            ("fd20:ce::254", "private"),
            ("fe80::1", "link-local"),
            ("fec0::1", "private"),
            ("ff02::1", "multicast"),
        ] {
            assert!(what(address).is_some_and(|what| what.contains(expected)), "{address}: {:?}", what(address));
        }
    }

    proptest! {
        #[test]
        fn what_the_standard_library_knows_as_special_is_not_public(bits: u32) {
            let address = Ipv4Addr::from_bits(bits);
            let special = address.is_private() || address.is_loopback() || address.is_link_local()
                || address.is_multicast() || address.is_broadcast() || address.is_documentation()
                || address.is_unspecified();
            prop_assert!(!special || not_public(address.into()).is_some());
        }

        #[test]
        fn an_address_that_carries_another_is_never_public(bits: u32) {
            let inner = u128::from(bits);
            for (prefix, shift) in [
                (0u128, 0),
                (0xffff << 32, 0),
                (0xffff << 48, 0),
                (0x0064_ff9b << 96, 0),
                (0x0064_ff9b_0001 << 80, 0),
                (0x2002 << 112, 80),
                (0x2001_0000 << 96, 0),
            ] {
                let address = Ipv6Addr::from_bits(prefix | inner << shift);
                prop_assert!(not_public(address.into()).is_some(), "{}", address);
            }
        }

        #[test]
        fn of_ipv6_only_global_unicast_can_be_public(bits: u128) {
            let address = Ipv6Addr::from_bits(bits);
            let global = (0x2000..0x4000).contains(&address.segments()[0]);
            prop_assert!(global || not_public(address.into()).is_some());
        }
    }
}
