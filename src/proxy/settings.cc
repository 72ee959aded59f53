#include "proxy/settings.h"

#include <openssl/sha.h>

#include <algorithm>

namespace sluice::proxy {
namespace {

// FNV-1a over both with their ends marked, then mixed: the hashes of a set are added up.
std::uint64_t hash_of(std::string_view name, std::string_view value) noexcept {
  std::uint64_t hash = 0xCBF29CE484222325U;
  for (std::string_view part : {name, value}) {
    for (char c : part) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001B3U;
    hash = (hash ^ 0x100U) * 0x100000001B3U;
  }
  hash ^= hash >> 33U;
  hash *= 0xFF51AFD7ED558CCDU;
  return hash ^ hash >> 33U;
}

std::vector<Settings::Entry>::const_iterator place_of(const std::vector<Settings::Entry>& entries,
                                                      std::string_view name) noexcept {
  return std::lower_bound(entries.begin(), entries.end(), name,
                          [](const Settings::Entry& entry, std::string_view wanted) { return entry.name < wanted; });
}

void append_set_config(std::string& sql, std::string_view name, std::string_view value) {
  sql += "pg_catalog.set_config(";
  append_literal(sql, name);
  sql += ",";
  append_literal(sql, value);
  sql += ",false)";
}

}  // namespace

const std::string* Settings::find(std::string_view name) const noexcept {
  auto at = place_of(entries_, name);
  return at != entries_.end() && at->name == name ? &at->value : nullptr;
}

void Settings::set(std::string_view name, std::string_view value) {
  auto at = entries_.begin() + (place_of(entries_, name) - entries_.begin());
  if (at != entries_.end() && at->name == name) {
    fingerprint_ -= hash_of(name, at->value);
    at->value = value;
  } else {
    entries_.insert(at, Entry{std::string(name), std::string(value)});
  }
  fingerprint_ += hash_of(name, value);
}

void Settings::erase(std::string_view name) {
  auto at = place_of(entries_, name);
  if (at == entries_.end() || at->name != name) return;
  fingerprint_ -= hash_of(name, at->value);
  entries_.erase(at);
}

void Settings::clear() noexcept {
  entries_.clear();
  fingerprint_ = 0;
}

SettingsDigest Settings::digest() const {
  std::string all;
  for (const Entry& entry : entries_) {
    all.append(entry.name).push_back('\0');
    all.append(entry.value).push_back('\0');
  }
  std::uint8_t whole[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const std::uint8_t*>(all.data()), all.size(), whole);
  SettingsDigest cut;
  std::copy_n(whole, cut.size(), cut.begin());
  return cut;
}

std::string folded_name(std::string_view name) {
  std::string folded(name);
  for (char& c : folded) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return folded;
}

// A backslash means the same in E'…' whatever standard_conforming_strings says.
void append_literal(std::string& sql, std::string_view value) {
  if (value.find('\\') != std::string_view::npos) sql += 'E';
  sql += '\'';
  for (char c : value) {
    if (c == '\'' || c == '\\') sql += c;
    sql += c;
  }
  sql += '\'';
}

void append_identifier(std::string& sql, std::string_view name) {
  sql += '"';
  for (char c : name) {
    if (c == '"') sql += c;
    sql += c;
  }
  sql += '"';
}

// The role comes off first and on last: what the login role may set, the other role perhaps may not.
std::string setup_query(const Settings& have, const Settings& want, std::vector<std::string>& asked) {
  constexpr std::string_view kRole = "role";
  asked.clear();
  if (have.same_as(want)) return {};
  std::string sql;
  if (have.find(kRole) != nullptr) sql += "RESET role;";
  for (const Settings::Entry& entry : have.entries()) {
    const std::string* wanted = want.find(entry.name);
    if (entry.name == kRole || (wanted != nullptr && *wanted == entry.value)) continue;
    sql += "RESET ";
    append_identifier(sql, entry.name);
    sql += ';';
  }
  for (const Settings::Entry& entry : want.entries()) {
    const std::string* found = have.find(entry.name);
    if (entry.name != kRole && (found == nullptr || *found != entry.value)) asked.push_back(entry.name);
  }
  if (want.find(kRole) != nullptr) asked.emplace_back(kRole);
  for (std::size_t i = 0; i < asked.size(); i++) {
    sql += i == 0 ? "SELECT " : ",";
    append_set_config(sql, asked[i], *want.find(asked[i]));
  }
  return sql;
}

std::string read_back_query(const std::vector<std::string>& placeholders) {
  std::string sql = "SELECT pg_catalog.current_setting('role'),session_user";
  for (const std::string& name : placeholders) {
    sql += ",pg_catalog.current_setting(";
    append_literal(sql, name);
    sql += ",true)";
  }
  sql +=
      ";SELECT name,pg_catalog.current_setting(name) FROM pg_catalog.pg_settings "
      "WHERE source OPERATOR(pg_catalog.=) 'session'";
  return sql;
}

}  // namespace sluice::proxy
