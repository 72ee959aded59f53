#include "policy/document.h"

#include <cstring>

namespace sluice::policy {
namespace {

// Offset 0 of the text arena always holds the empty string.
constexpr std::uint32_t kEmptyText = 0;

// A whole number as JSON writes it, with ".0" tolerated because it is the same value; everything else is not an
// integer.
bool parse_integer(const char* text, std::size_t length, std::int64_t& value) noexcept {
  std::size_t at = 0;
  bool negative = length > 0 && text[0] == '-';
  if (negative) at++;
  std::size_t first_digit = at;
  std::uint64_t magnitude = 0;
  constexpr std::uint64_t kLargest = 0x7FFFFFFFFFFFFFFFULL;
  for (; at < length && text[at] >= '0' && text[at] <= '9'; at++) {
    auto digit = static_cast<std::uint64_t>(text[at] - '0');
    if (magnitude > (kLargest - digit) / 10) return false;
    magnitude = magnitude * 10 + digit;
  }
  if (at == first_digit) return false;
  if (at < length && text[at] == '.') {
    std::size_t first_zero = ++at;
    while (at < length && text[at] == '0') at++;
    if (at == first_zero) return false;
  }
  if (at != length) return false;
  value = negative ? -static_cast<std::int64_t>(magnitude) : static_cast<std::int64_t>(magnitude);
  return true;
}

}  // namespace

void Document::clear() noexcept {
  node_count_ = 0;
  text_[kEmptyText] = '\0';
  text_bytes_ = 1;
  depth_ = 0;
  pending_key_ = kNoNode;
  full_ = false;
}

std::uint32_t Document::add_text(const char* text, std::size_t length) noexcept {
  if (length >= kMaxTextBytes - text_bytes_) return kNoNode;
  std::uint32_t offset = text_bytes_;
  // A NUL inside would silently cut the text for every reader. Stored as another control character it is seen, and
  // the validator refuses control characters.
  for (std::size_t i = 0; i < length; i++) text_[offset + i] = text[i] == '\0' ? '\1' : text[i];
  text_[offset + length] = '\0';
  text_bytes_ += static_cast<std::uint32_t>(length) + 1;
  return offset;
}

// Answers kNoNode when the arena is used up or when a value cannot stand here (a second root, an object's value without
// a key): both mean that the builder's calls no longer describe a document.
std::uint32_t Document::add(NodeKind kind, std::uint32_t line) noexcept {
  if (full_) return kNoNode;
  bool misplaced = depth_ == 0 ? node_count_ != 0
                               : (nodes_[open_[depth_ - 1]].kind == NodeKind::object) != (pending_key_ != kNoNode);
  if (misplaced || node_count_ >= kMaxNodes) {
    full_ = true;
    return kNoNode;
  }
  std::uint32_t index = node_count_++;
  nodes_[index] = Node{kind, false, false, 0, kEmptyText, pending_key_, line, kNoNode, kNoNode};
  pending_key_ = kNoNode;
  if (depth_ > 0) {
    std::uint32_t& last = last_child_[depth_ - 1];
    if (last == kNoNode) {
      nodes_[open_[depth_ - 1]].first_child = index;
    } else {
      nodes_[last].next = index;
    }
    last = index;
  }
  return index;
}

Status Document::begin(NodeKind kind, std::uint32_t line) noexcept {
  if (depth_ >= kMaxDepth) full_ = true;
  std::uint32_t index = add(kind, line);
  if (index == kNoNode) return Status::table_full;
  open_[depth_] = index;
  last_child_[depth_] = kNoNode;
  depth_++;
  return Status::ok;
}

Status Document::begin_object(std::uint32_t line) noexcept { return begin(NodeKind::object, line); }

Status Document::begin_array(std::uint32_t line) noexcept { return begin(NodeKind::array, line); }

Status Document::end() noexcept {
  if (depth_ == 0 || pending_key_ != kNoNode) full_ = true;
  if (full_) return Status::table_full;
  depth_--;
  return Status::ok;
}

Status Document::key(const char* text, std::size_t length) noexcept {
  bool expected = depth_ > 0 && nodes_[open_[depth_ - 1]].kind == NodeKind::object && pending_key_ == kNoNode;
  if (!expected) full_ = true;
  if (full_) return Status::table_full;
  std::uint32_t offset = add_text(text, length);
  if (offset == kNoNode) {
    full_ = true;
    return Status::table_full;
  }
  pending_key_ = offset;
  return Status::ok;
}

Status Document::add_null(std::uint32_t line) noexcept {
  return add(NodeKind::null, line) == kNoNode ? Status::table_full : Status::ok;
}

Status Document::add_boolean(bool value, std::uint32_t line) noexcept {
  std::uint32_t index = add(NodeKind::boolean, line);
  if (index == kNoNode) return Status::table_full;
  nodes_[index].flag = value;
  return Status::ok;
}

Status Document::add_number(const char* text, std::size_t length, std::uint32_t line) noexcept {
  if (add_string(text, length, line) != Status::ok) return Status::table_full;
  Node& node = nodes_[node_count_ - 1];
  node.kind = NodeKind::number;
  node.is_integer = parse_integer(text, length, node.integer);
  return Status::ok;
}

Status Document::add_string(const char* text, std::size_t length, std::uint32_t line) noexcept {
  std::uint32_t index = add(NodeKind::string, line);
  if (index == kNoNode) return Status::table_full;
  std::uint32_t offset = add_text(text, length);
  if (offset == kNoNode) {
    full_ = true;
    return Status::table_full;
  }
  nodes_[index].text = offset;
  return Status::ok;
}

std::uint32_t Document::find(std::uint32_t object, const char* key) const noexcept {
  if (object >= node_count_ || nodes_[object].kind != NodeKind::object) return kNoNode;
  for (std::uint32_t i = nodes_[object].first_child; i != kNoNode; i = nodes_[i].next) {
    if (std::strcmp(text(nodes_[i].key), key) == 0) return i;
  }
  return kNoNode;
}

}  // namespace sluice::policy
