#include "wire/header_walker.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace sluice::wire {
namespace {

using namespace std::string_literals;

std::string message(char type, const std::string& payload) {
  auto length = static_cast<std::uint32_t>(payload.size() + 4);
  std::string whole(1, type);
  for (unsigned shift : {24U, 16U, 8U, 0U}) whole += static_cast<char>(length >> shift);
  return whole + payload;
}

struct Random {
  std::uint32_t state;
  std::uint32_t operator()(std::uint32_t below) {
    state = state * 1664525U + 1013904223U;
    return (state >> 8U) % below;
  }
};

using Messages = std::vector<std::pair<char, std::string>>;

// Feeds `stream` in the pieces that `cut` says and puts the messages together again; every byte must come back in raw.
template <typename Cut>
PieceKind walk(HeaderWalker& walker, const std::string& stream, Cut cut, Messages& messages) {
  std::string back;
  std::string payload;
  for (std::size_t at = 0; at < stream.size();) {
    // A copy of its own, so that a sanitizer sees every byte read beyond the piece.
    std::vector<std::uint8_t> part(stream.begin() + static_cast<std::ptrdiff_t>(at),
                                   stream.begin() + static_cast<std::ptrdiff_t>(std::min(stream.size(), at + cut())));
    at += part.size();
    Bytes input = part;
    while (!input.empty()) {
      Piece piece = walker.next(input);
      back += as_text(piece.raw);
      if (piece.kind == PieceKind::unknown_type || piece.kind == PieceKind::invalid_length) return piece.kind;
      if (piece.kind != PieceKind::message) continue;
      if (piece.first) payload.clear();
      payload += as_text(piece.payload);
      if (!piece.last) continue;
      EXPECT_EQ(payload.size(), piece.length);
      messages.emplace_back(static_cast<char>(piece.type), payload);
    }
  }
  EXPECT_EQ(back, stream);
  return PieceKind::nothing;
}

TEST(WireHeaderWalker, FindsTheSameMessagesHoweverTheStreamIsCut) {
  Random random{7};
  const std::string types = "123CEGHWZSTDdN";
  for (int round = 0; round < 500; round++) {
    std::string stream;
    Messages sent;
    for (std::uint32_t i = random(12); i > 0; i--) {
      char type = types[random(static_cast<std::uint32_t>(types.size()))];
      TypeRule rule = type_rule(Direction::backend, Phase::relay, static_cast<std::uint8_t>(type));
      std::string payload(std::min(rule.max_length, rule.min_length + random(50)) - 4, 'Z');
      sent.emplace_back(type, payload);
      stream += message(type, payload);
    }
    for (std::uint32_t size : {1U, 2U, 5U, 7U, 100000U}) {
      Messages found;
      HeaderWalker walker(Direction::backend);
      EXPECT_EQ(walk(
                    walker, stream, [&] { return size == 7 ? 1 + random(9) : size; }, found),
                PieceKind::nothing);
      EXPECT_EQ(found, sent);
      EXPECT_TRUE(walker.between_messages());
    }
  }
}

TEST(WireHeaderWalker, SaysWhichMessagesARelayHasToRead) {
  for (char type : "123GHWIns"s) {
    EXPECT_EQ(type_rule(Direction::backend, Phase::relay, static_cast<std::uint8_t>(type)).interest, Interest::note)
        << type;
  }
  for (char type : "CEZS"s) {
    EXPECT_EQ(type_rule(Direction::backend, Phase::relay, static_cast<std::uint8_t>(type)).interest, Interest::read)
        << type;
  }
  for (char type : "DdNA"s) {
    EXPECT_EQ(type_rule(Direction::backend, Phase::relay, static_cast<std::uint8_t>(type)).interest, Interest::count)
        << type;
  }
}

TEST(WireHeaderWalker, RefusesAnUnknownTypeAtItsFirstByte) {
  for (int type = 0; type < 256; type++) {
    const auto byte = static_cast<std::uint8_t>(type);
    bool known = type != 0 && "QPBFCDEHSXcfd"s.find(static_cast<char>(type)) != std::string::npos;
    HeaderWalker walker(Direction::frontend);
    Bytes input(&byte, 1);
    EXPECT_EQ(walker.next(input).kind, known ? PieceKind::partial_header : PieceKind::unknown_type) << type;
    EXPECT_TRUE(input.empty());
  }
}

TEST(WireHeaderWalker, RefusesALengthFromTheHeaderAlone) {
  struct Case {
    Direction direction;
    std::string header;
    PieceKind expected;
  };
  const Case cases[] = {
      {Direction::frontend, "Q\0\0\0\3"s, PieceKind::invalid_length},
      {Direction::frontend, "Q\xFF\xFF\xFF\xFF"s, PieceKind::invalid_length},
      {Direction::frontend, "Q\x3F\xFF\xFF\xFE"s, PieceKind::message},
      {Direction::frontend, "Q\x3F\xFF\xFF\xFF"s, PieceKind::invalid_length},
      {Direction::frontend, "S\0\0\x27\x10"s, PieceKind::message},         // 10000
      {Direction::frontend, "S\0\0\x27\x11"s, PieceKind::invalid_length},  // 10001
      {Direction::backend, "Z\0\0\0\4"s, PieceKind::invalid_length},
      {Direction::backend, "Z\0\0\0\5"s, PieceKind::message},
      {Direction::backend, "Z\0\0\0\6"s, PieceKind::invalid_length},
      {Direction::backend, "1\0\0\0\5"s, PieceKind::invalid_length},
      {Direction::backend, "S\0\0\x75\x31"s, PieceKind::invalid_length},  // 30001
      {Direction::backend, "D\x04\0\0\0"s, PieceKind::message},
  };
  for (const Case& c : cases) {
    HeaderWalker walker(c.direction);
    Bytes input = as_bytes(c.header);
    EXPECT_EQ(walker.next(input).kind, c.expected) << c.header;
    EXPECT_TRUE(input.empty());
  }
}

TEST(WireHeaderWalker, KeepsTheCallersLimit) {
  HeaderWalker walker(Direction::frontend, Phase::relay, 100);
  std::string fits = message('Q', std::string(100, 'x'));
  Bytes input = as_bytes(fits);
  EXPECT_TRUE(walker.next(input).last);
  std::string over = message('Q', std::string(101, 'x'));
  input = as_bytes(over);
  EXPECT_EQ(walker.next(input).kind, PieceKind::invalid_length);
  EXPECT_EQ(input.size(), 101U);
  // It stays so: nothing behind a broken header is taken for a message.
  EXPECT_EQ(walker.next(input).kind, PieceKind::invalid_length);
  EXPECT_EQ(input.size(), 101U);
}

TEST(WireHeaderWalker, EachPhaseHasItsOwnMessages) {
  HeaderWalker client(Direction::frontend, Phase::login);
  std::string stream = message('p', "secret\0"s) + message('Q', "select 1\0"s);
  Bytes input = as_bytes(stream);
  EXPECT_TRUE(client.next(input).last);
  HeaderWalker early = client;
  Bytes rest = input;
  EXPECT_EQ(early.next(rest).kind, PieceKind::unknown_type);
  client.enter(Phase::relay);
  EXPECT_TRUE(client.next(input).last);
  std::string password = message('p', "x");
  input = as_bytes(password);
  EXPECT_EQ(client.next(input).kind, PieceKind::unknown_type);
  EXPECT_FALSE(type_rule(Direction::backend, Phase::login, 'D').known);
  EXPECT_TRUE(type_rule(Direction::backend, Phase::login, 'R').known);
  EXPECT_FALSE(type_rule(Direction::backend, Phase::relay, 'R').known);
}

TEST(WireHeaderWalker, GivesBackTheHeaderThatCameInPieces) {
  HeaderWalker walker(Direction::frontend);
  std::string stream = message('Q', "ab");
  Bytes first = as_bytes(stream).first(3);
  EXPECT_EQ(walker.next(first).kind, PieceKind::partial_header);
  EXPECT_FALSE(walker.between_messages());
  Bytes second = as_bytes(stream).subspan(3);
  Piece piece = walker.next(second);
  EXPECT_TRUE(piece.first && piece.last);
  EXPECT_EQ(as_text(walker.header()), stream.substr(0, 5));
  EXPECT_EQ(walker.next(second).kind, PieceKind::nothing);
}

TEST(WireHeaderWalker, CollectsAPayloadInBoundedMemory) {
  std::string stream = message('E', "0123456789");
  for (std::size_t storage_size : {0U, 4U, 9U, 10U, 64U}) {
    std::vector<std::uint8_t> storage(storage_size);
    Collector collector(storage);
    HeaderWalker walker(Direction::backend);
    Collected last = Collected::more;
    for (char c : stream) {
      Bytes input(reinterpret_cast<const std::uint8_t*>(&c), 1);
      Piece piece = walker.next(input);
      if (piece.kind == PieceKind::message) last = collector.add(piece);
    }
    EXPECT_EQ(last, storage_size < 10 ? Collected::too_long : Collected::complete);
    EXPECT_EQ(as_text(collector.payload()), std::string("0123456789").substr(0, storage_size));
  }
  // One that arrived whole needs no memory at all, however small the storage is.
  HeaderWalker walker(Direction::backend);
  Collector collector({});
  Bytes input = as_bytes(stream);
  EXPECT_EQ(collector.add(walker.next(input)), Collected::complete);
  EXPECT_EQ(as_text(collector.payload()), "0123456789");
}

TEST(WireHeaderWalker, RandomStreamsEndAndStayInside) {
  Random random{42};
  for (int round = 0; round < 5000; round++) {
    std::string stream;
    for (std::uint32_t i = random(60); i > 0; i--)
      stream += random(3) == 0 ? static_cast<char>(random(256)) : "QSZ1\0\0\0\4\5"[random(9)];
    Messages at_once;
    Messages in_pieces;
    HeaderWalker one(round % 2 == 0 ? Direction::frontend : Direction::backend);
    HeaderWalker two = one;
    EXPECT_EQ(walk(
                  one, stream, [] { return std::size_t{1000}; }, at_once),
              walk(
                  two, stream, [&] { return 1 + random(3); }, in_pieces));
    EXPECT_EQ(at_once, in_pieces);
  }
}

}  // namespace
}  // namespace sluice::wire
