// A parsed policy document as a fixed arena of nodes: what both jsonb (server) and YAML (command line) are copied into
// before the one validator reads it. The owner supplies the memory (about 400 kB); nothing is allocated here.
#pragma once

#include <cstddef>
#include <cstdint>

#include "policy/status.h"

namespace sluice::policy {

enum class NodeKind : std::uint8_t { null, boolean, number, string, object, array };

inline constexpr std::uint32_t kMaxNodes = 8192;
inline constexpr std::uint32_t kMaxTextBytes = 256 * 1024;
inline constexpr std::uint32_t kMaxDepth = 16;
inline constexpr std::uint32_t kNoNode = 0xFFFFFFFFU;

struct Node {
  NodeKind kind;
  bool flag;        // boolean
  bool is_integer;  // number: exactly representable in `integer`
  std::int64_t integer;
  std::uint32_t text;  // offset of the NUL-terminated string, or of a number's source text
  std::uint32_t key;   // offset of the key in the parent object, kNoNode in an array and at the root
  std::uint32_t line;  // 1-based line in the source, 0 where unknown (jsonb)
  std::uint32_t first_child;
  std::uint32_t next;
};

class Document {
 public:
  void clear() noexcept;

  // Builder: clear() first; begin/end nest; key() names the next value of an object. Every call answers table_full once
  // the arena, the text or the depth is used up or a call is out of place (a value without its key, a second root), and
  // every later call then answers the same. complete() tells a whole document from the beginning of one.
  [[nodiscard]] Status begin_object(std::uint32_t line = 0) noexcept;
  [[nodiscard]] Status begin_array(std::uint32_t line = 0) noexcept;
  [[nodiscard]] Status end() noexcept;
  [[nodiscard]] Status key(const char* text, std::size_t length) noexcept;
  [[nodiscard]] Status add_null(std::uint32_t line = 0) noexcept;
  [[nodiscard]] Status add_boolean(bool value, std::uint32_t line = 0) noexcept;
  [[nodiscard]] Status add_number(const char* text, std::size_t length, std::uint32_t line = 0) noexcept;
  [[nodiscard]] Status add_string(const char* text, std::size_t length, std::uint32_t line = 0) noexcept;

  [[nodiscard]] bool complete() const noexcept { return !full_ && depth_ == 0 && node_count_ > 0; }

  // Reader.
  [[nodiscard]] std::uint32_t root() const noexcept { return node_count_ == 0 ? kNoNode : 0; }
  [[nodiscard]] const Node& node(std::uint32_t index) const noexcept { return nodes_[index]; }
  [[nodiscard]] const char* text(std::uint32_t offset) const noexcept { return text_ + offset; }
  [[nodiscard]] std::uint32_t find(std::uint32_t object, const char* key) const noexcept;

 private:
  [[nodiscard]] std::uint32_t add(NodeKind kind, std::uint32_t line) noexcept;
  [[nodiscard]] std::uint32_t add_text(const char* text, std::size_t length) noexcept;
  [[nodiscard]] Status begin(NodeKind kind, std::uint32_t line) noexcept;

  std::uint32_t node_count_;
  std::uint32_t text_bytes_;
  std::uint32_t depth_;
  std::uint32_t pending_key_;
  bool full_;
  std::uint32_t open_[kMaxDepth];
  std::uint32_t last_child_[kMaxDepth];
  Node nodes_[kMaxNodes];
  char text_[kMaxTextBytes];
};

}  // namespace sluice::policy
