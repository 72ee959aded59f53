// What the server still owes a client, in order: one entry for each message that was sent and has an answer, and one
// for each answer that the proxy gives itself, which must not overtake the server's. An error takes everything with it
// that stands before the next Sync, as it does on the server.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::proxy {

enum class Owed : std::uint8_t {
  query,          // … Z
  function_call,  // … Z
  parse,          // 1
  bind,           // 2
  describe,       // t and then, as for a portal, T or n
  execute,        // … C, I or s
  close,          // 3
  sync,           // Z
  // The session's own messages: their answers are not the client's.
  hidden_parse,
  hidden_close,
  hidden_sync,
  // The session's own answers.
  local_parse,
  local_close,
  // CopyDone or CopyFail was sent here. It has no answer, but says where the server's COPY stopped reading.
  copy_end,
};

enum ReplyFlag : std::uint8_t {
  kRefused = 1U << 0U,     // the server was sent something that fails; subject is the refusal to show for it
  kClosesName = 1U << 1U,  // its tag is UNLISTEN, the client is to see DEALLOCATE; subject is the statement
  kOnlyProbes = 1U << 2U,  // Parse of a statement that the server has already
  kDuplicate = 1U << 4U,   // Parse under a name that is taken: it will fail, and nothing is to be undone
  kHasOlder = 1U << 5U,    // replaced an unnamed statement that comes back if this message is skipped
  kUnnamed = 1U << 3U,     // Parse of the unnamed statement
};

struct Reply {
  static constexpr std::uint32_t kNoSubject = 0xFFFFFFFF;

  Owed owed = Owed::query;
  std::uint8_t flags = 0;
  std::uint32_t subject = kNoSubject;  // slot of the client's statement, or of the refusal
  std::uint64_t statement = 0;         // number of the server's statement
  [[nodiscard]] bool has(std::uint8_t flag) const noexcept { return (flags & flag) != 0; }
};

// Answered by ReadyForQuery.
[[nodiscard]] constexpr bool ends_with_ready(Owed owed) noexcept {
  return owed == Owed::query || owed == Owed::function_call || owed == Owed::sync || owed == Owed::hidden_sync;
}

// A ring that grows to what it needs; whoever pushes holds it to a limit.
class ReplyQueue {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  [[nodiscard]] Reply& front() noexcept { return at(0); }
  [[nodiscard]] const Reply& front() const noexcept { return ring_[begin_ & (ring_.size() - 1)]; }
  [[nodiscard]] Reply& at(std::size_t index) noexcept { return ring_[(begin_ + index) & (ring_.size() - 1)]; }

  void push(const Reply& reply);
  void pop() noexcept;
  void clear() noexcept;

  // Entries before the first one of kind sync or hidden_sync: what an error of the front takes with it. size() if there
  // is none: then everything that comes before the client's next Sync is lost as well.
  [[nodiscard]] std::size_t before_sync() const noexcept;
  void drop_front(std::size_t count) noexcept;

  // The front turned out to be a COPY from the client. The server passes over Flush and Sync until the copy ends, and
  // takes any other message for an error. So the Syncs are taken out that stand before that.
  struct CopyIn {
    std::size_t syncs;  // taken out
    bool ended;         // by what has been sent already
  };
  CopyIn enter_copy_in() noexcept;

  // No ReadyForQuery is owed: the server waits for more of a batch.
  [[nodiscard]] bool awaits_sync() const noexcept { return ready_owed_ == 0; }

 private:
  void remove(std::size_t index) noexcept;
  [[nodiscard]] std::size_t behind_local() const noexcept;

  std::vector<Reply> ring_;  // its size is a power of two
  std::size_t begin_ = 0;
  std::size_t size_ = 0;
  std::size_t ready_owed_ = 0;
};

}  // namespace sluice::proxy
