// Prepared statements by the client's names, and by ours on a server connection.
//
// A client's statement keeps its text, so that it can be parsed again wherever the client is served next. On a server
// it lives under a name of ours and is shared by all clients for whom it would mean the same: same text, same parameter
// types, same settings and role. What would not mean the same, as a text with 'now' in it, gets a key that nobody
// shares.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "proxy/settings.h"
#include "proxy/text_effects.h"
#include "wire/bytes.h"

namespace sluice::proxy {

struct StatementKey {
  std::array<std::uint8_t, 32> text = {};  // SHA-256 of text and types; or, when not shared, client and number
  SettingsDigest settings = {};
  bool operator==(const StatementKey&) const = default;
};

struct StatementKeyHash {
  std::size_t operator()(const StatementKey& key) const noexcept;
};

struct NameHash {
  using is_transparent = void;
  std::size_t operator()(std::string_view name) const noexcept { return std::hash<std::string_view>()(name); }
};

// The server compares no more of a statement's name.
inline constexpr std::size_t kStatementNameBytes = 63;

struct ClientStatement {
  std::string name;
  std::string query;
  std::string types;  // four bytes each, as in the message
  std::array<std::uint8_t, 32> text_digest = {};
  std::uint64_t private_number = 0;  // 0: never had a key of its own
  TextEffects effects;
  std::uint64_t batch = 0;  // in which it was parsed or closed
  bool parsed = false;      // the server confirmed it
  bool closed = false;      // the name is free again, but the Close may still be skipped
  [[nodiscard]] std::size_t bytes() const noexcept { return name.size() + query.size() + types.size(); }
};

// One client's statements, addressed by slot so that replies to come can refer to them.
class ClientStatements {
 public:
  static constexpr std::uint32_t kNone = 0xFFFFFFFF;

  // The slot of an open statement.
  [[nodiscard]] std::uint32_t find(std::string_view name) const noexcept;
  [[nodiscard]] ClientStatement& at(std::uint32_t slot) noexcept { return slots_[slot]; }

  // The name must be free.
  [[nodiscard]] std::uint32_t add(std::string_view name, std::string_view query, wire::Bytes types);
  void hide(std::uint32_t slot);    // Close was sent: the name is free
  void unhide(std::uint32_t slot);  // the Close was skipped
  void forget(std::uint32_t slot);  // closed, or never parsed
  // Everything but what has not been confirmed yet.
  void forget_parsed();

  [[nodiscard]] std::size_t size() const noexcept { return names_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }
  // Hidden ones.
  [[nodiscard]] std::size_t closing() const noexcept { return closing_; }

 private:
  std::unordered_map<std::string, std::uint32_t, NameHash, std::equal_to<>> names_;
  std::vector<ClientStatement> slots_;
  std::vector<std::uint32_t> free_;
  std::size_t bytes_ = 0;
  std::size_t closing_ = 0;
};

struct ServerStatement {
  StatementKey key;
  std::uint64_t number = 0;  // its name on the server is made of it
  std::size_t bytes = 0;
  std::uint64_t batch = 0;  // in which Parse was sent
  bool parsed = false;      // nobody else may see it before ParseComplete
};

// The name a statement has on the server, in memory of the caller.
struct ServerStatementName {
  char text[32];
  std::size_t length;
  explicit ServerStatementName(std::uint64_t number) noexcept;
  [[nodiscard]] std::string_view view() const noexcept { return {text, length}; }
};

// The statements of one server connection, least recently used last.
class ServerStatements {
 public:
  // Counts as a use.
  [[nodiscard]] ServerStatement* find(const StatementKey& key);
  ServerStatement& add(const StatementKey& key, std::size_t bytes, std::uint64_t batch);
  void parsed(std::uint64_t number);
  void erase(std::uint64_t number);
  // Everything but what has not been confirmed yet.
  void forget_parsed();
  // Removes the least recently used one while there are more than so many; its number, or 0.
  [[nodiscard]] std::uint64_t evict(std::size_t max_count, std::size_t max_bytes);

  [[nodiscard]] std::size_t size() const noexcept { return order_.size(); }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }

 private:
  using Order = std::list<ServerStatement>;
  Order order_;
  std::unordered_map<StatementKey, Order::iterator, StatementKeyHash> by_key_;
  std::unordered_map<std::uint64_t, Order::iterator> by_number_;
  std::uint64_t next_number_ = 1;
  std::size_t bytes_ = 0;
};

// SHA-256 of a text and its parameter types.
[[nodiscard]] std::array<std::uint8_t, 32> text_digest(std::string_view query, wire::Bytes types);

}  // namespace sluice::proxy
