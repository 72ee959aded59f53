// Names and values of settings: what a client wants, what a server has, and what a client was told. Few and seldom
// changed, but compared at every assignment, so a fingerprint says in one comparison that two sets are the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace sluice::proxy {

// The part of a statement's key that stands for the settings it was parsed under.
using SettingsDigest = std::array<std::uint8_t, 16>;

class Settings {
 public:
  struct Entry {
    std::string name;
    std::string value;
    bool operator==(const Entry&) const = default;
  };

  [[nodiscard]] const std::string* find(std::string_view name) const noexcept;
  void set(std::string_view name, std::string_view value);
  void erase(std::string_view name);
  void clear() noexcept;

  // Sorted by name.
  [[nodiscard]] const std::vector<Entry>& entries() const noexcept { return entries_; }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }
  [[nodiscard]] bool same_as(const Settings& other) const noexcept {
    return fingerprint_ == other.fingerprint_ && entries_.size() == other.entries_.size();
  }
  [[nodiscard]] std::uint64_t fingerprint() const noexcept { return fingerprint_; }
  // Different for different sets: SHA-256, cut to 128 bits.
  [[nodiscard]] SettingsDigest digest() const;

 private:
  std::vector<Entry> entries_;
  std::uint64_t fingerprint_ = 0;  // the sum of the entries' hashes
};

// Names of settings are compared without regard to case; this is the one spelling we keep.
[[nodiscard]] std::string folded_name(std::string_view name);

// A custom parameter, which exists from the first time that somebody sets it. It is in no view of the server's, and a
// connection never gets rid of it.
[[nodiscard]] inline bool is_placeholder(std::string_view name) noexcept {
  return name.find('.') != std::string_view::npos;
}

void append_literal(std::string& sql, std::string_view value);
void append_identifier(std::string& sql, std::string_view name);

// The statements that turn a server with the settings `have` into one with `want`, to be sent as one Query: everything
// that differs is reset first, because values such as DateStyle's may say a part only. `asked` receives the names whose
// values the last statement's row then holds as the server spells them. Empty when there is nothing to do.
[[nodiscard]] std::string setup_query(const Settings& have, const Settings& want, std::vector<std::string>& asked);

// The statements that tell what a transaction did to the settings. The first row holds role, session_user and the
// values of `placeholders`; the rows of the second result are names and values of what is set in this session.
[[nodiscard]] std::string read_back_query(const std::vector<std::string>& placeholders);

}  // namespace sluice::proxy
