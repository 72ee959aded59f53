#include "proxy/address.h"

#include <gtest/gtest.h>
#include <sys/un.h>

namespace sluice::proxy {
namespace {

std::string round_trip(const std::string& text) {
  std::optional<Address> address = Address::parse(text, 5432);
  return address ? address->text() : "none";
}

std::string peer_of(const std::string& text) {
  std::optional<Address> address = Address::parse(text, 5432);
  return address ? address->peer() : "none";
}

TEST(ProxyAddress, NumericAddressesAndPathsAreRead) {
  EXPECT_EQ(round_trip("127.0.0.1"), "127.0.0.1:5432");
  EXPECT_EQ(round_trip("::1"), "[::1]:5432");
  EXPECT_EQ(round_trip("[2001:db8::7]"), "[2001:db8::7]:5432");
  EXPECT_EQ(round_trip("::ffff:10.1.2.3"), "10.1.2.3:5432");
  EXPECT_EQ(round_trip("/run/postgresql/.s.PGSQL.5432"), "/run/postgresql/.s.PGSQL.5432");
  EXPECT_EQ(round_trip("@abstract"), "@abstract");
}

TEST(ProxyAddress, NamesAndMalformedAddressesAreNone) {
  for (const char* text : {"", "localhost", "1.2.3", "1.2.3.4.5", "256.0.0.1", "::1::", "[::1", "1.2.3.4:5432",
                           " 1.2.3.4", "01.2.3.4567", "fe80::1%eth0"}) {
    EXPECT_EQ(round_trip(text), "none") << text;
  }
  EXPECT_EQ(round_trip(std::string("/a\0b", 4)), "none");
  EXPECT_EQ(round_trip(std::string(500, '1')), "none");
}

TEST(ProxyAddress, TheLongestPathIsTakenAndALongerOneRefused) {
  std::string longest = "/" + std::string(sizeof(sockaddr_un::sun_path) - 2, 'x');
  EXPECT_EQ(round_trip(longest), longest);
  EXPECT_EQ(round_trip(longest + "x"), "none");
}

TEST(ProxyAddress, LimitsCountAnIpv6NetworkAndAnIpv4AddressInEitherForm) {
  EXPECT_EQ(peer_of("10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(peer_of("::ffff:10.1.2.3"), "10.1.2.3");
  EXPECT_EQ(peer_of("2001:db8:1:2:3:4:5:6"), "2001:db8:1:2::/64");
  EXPECT_EQ(peer_of("2001:db8:1:2::"), peer_of("2001:db8:1:2:ffff::1"));
  EXPECT_NE(peer_of("2001:db8:1:2::"), peer_of("2001:db8:1:3::"));
  EXPECT_EQ(peer_of("/run/x"), "(unix)");
}

TEST(ProxyAddress, AddressesAreComparedWithTheirPorts) {
  EXPECT_EQ(*Address::parse("127.0.0.1", 1), *Address::parse("127.0.0.1", 1));
  EXPECT_FALSE(*Address::parse("127.0.0.1", 1) == *Address::parse("127.0.0.1", 2));
  EXPECT_FALSE(*Address::parse("127.0.0.1", 1) == *Address::parse("::1", 1));
  EXPECT_EQ(Address::parse("::1", 65535)->port(), 65535);
  EXPECT_TRUE(Address::parse("/x", 0)->is_local());
}

TEST(ProxyAddress, TheNamelessEndOfAUnixSocketHasAText) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
  EXPECT_EQ(Address::of_peer(ends[0]).text(), "(unix)");
  EXPECT_EQ(Address::of_descriptor(-1).text(), "(unknown)");
}

}  // namespace
}  // namespace sluice::proxy
