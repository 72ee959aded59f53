#include "proxy/statements.h"

#include <openssl/sha.h>

#include <charconv>
#include <cstring>

namespace sluice::proxy {
namespace {

constexpr std::string_view kNamePrefix = "sluice_";

}  // namespace

std::size_t StatementKeyHash::operator()(const StatementKey& key) const noexcept {
  std::uint64_t text = 0;
  std::uint64_t settings = 0;
  std::memcpy(&text, key.text.data(), sizeof(text));
  std::memcpy(&settings, key.settings.data(), sizeof(settings));
  return static_cast<std::size_t>(text ^ settings * 0x9E3779B97F4A7C15U);
}

std::array<std::uint8_t, 32> text_digest(std::string_view query, wire::Bytes types) {
  // No text holds a NUL, so text and types cannot be taken for another pair.
  std::string all(query);
  all.push_back('\0');
  all.append(wire::as_text(types));
  std::array<std::uint8_t, 32> digest;
  SHA256(reinterpret_cast<const std::uint8_t*>(all.data()), all.size(), digest.data());
  return digest;
}

std::uint32_t ClientStatements::find(std::string_view name) const noexcept {
  auto found = names_.find(name.substr(0, kStatementNameBytes));
  return found == names_.end() ? kNone : found->second;
}

std::uint32_t ClientStatements::add(std::string_view name, std::string_view query, wire::Bytes types) {
  std::uint32_t slot = 0;
  if (free_.empty()) {
    slot = static_cast<std::uint32_t>(slots_.size());
    slots_.emplace_back();
  } else {
    slot = free_.back();
    free_.pop_back();
    slots_[slot] = {};
  }
  ClientStatement& statement = slots_[slot];
  statement.name = name.substr(0, kStatementNameBytes);
  statement.query = query;
  statement.types = wire::as_text(types);
  statement.text_digest = text_digest(query, types);
  bytes_ += statement.bytes();
  names_.emplace(statement.name, slot);
  return slot;
}

void ClientStatements::hide(std::uint32_t slot) {
  auto named = names_.find(slots_[slot].name);
  if (named != names_.end() && named->second == slot) names_.erase(named);
  if (!slots_[slot].closed) closing_++;
  slots_[slot].closed = true;
}

void ClientStatements::unhide(std::uint32_t slot) {
  if (!slots_[slot].closed) return;
  slots_[slot].closed = false;
  closing_--;
  names_.emplace(slots_[slot].name, slot);
}

void ClientStatements::forget(std::uint32_t slot) {
  if (slots_[slot].name.empty()) return;
  hide(slot);
  closing_--;
  bytes_ -= slots_[slot].bytes();
  slots_[slot] = {};
  free_.push_back(slot);
}

void ClientStatements::forget_parsed() {
  for (std::uint32_t slot = 0; slot < slots_.size(); slot++) {
    if (slots_[slot].parsed && !slots_[slot].closed) forget(slot);
  }
}

ServerStatementName::ServerStatementName(std::uint64_t number) noexcept {
  std::memcpy(text, kNamePrefix.data(), kNamePrefix.size());
  std::to_chars_result end = std::to_chars(text + kNamePrefix.size(), text + sizeof(text), number);
  length = static_cast<std::size_t>(end.ptr - text);
}

ServerStatement* ServerStatements::find(const StatementKey& key) {
  auto found = by_key_.find(key);
  if (found == by_key_.end()) return nullptr;
  order_.splice(order_.begin(), order_, found->second);
  return &*found->second;
}

ServerStatement& ServerStatements::add(const StatementKey& key, std::size_t bytes, std::uint64_t batch) {
  order_.push_front({key, next_number_++, bytes, batch, false});
  by_key_[key] = order_.begin();
  by_number_[order_.front().number] = order_.begin();
  bytes_ += bytes;
  return order_.front();
}

void ServerStatements::parsed(std::uint64_t number) {
  auto found = by_number_.find(number);
  if (found != by_number_.end()) found->second->parsed = true;
}

void ServerStatements::erase(std::uint64_t number) {
  auto found = by_number_.find(number);
  if (found == by_number_.end()) return;
  Order::iterator at = found->second;
  bytes_ -= at->bytes;
  auto keyed = by_key_.find(at->key);
  if (keyed != by_key_.end() && keyed->second == at) by_key_.erase(keyed);
  by_number_.erase(found);
  order_.erase(at);
}

void ServerStatements::forget_parsed() {
  for (auto at = order_.begin(); at != order_.end();) {
    std::uint64_t number = at->number;
    bool parsed = at->parsed;
    ++at;
    if (parsed) erase(number);
  }
}

std::uint64_t ServerStatements::evict(std::size_t max_count, std::size_t max_bytes) {
  if (order_.size() <= max_count && bytes_ <= max_bytes) return 0;
  for (auto at = order_.rbegin(); at != order_.rend(); ++at) {
    if (!at->parsed) continue;  // the answer to its Parse is still to come
    std::uint64_t number = at->number;
    erase(number);
    return number;
  }
  return 0;
}

}  // namespace sluice::proxy
