// Where OpenSSL writes: a BIO that always takes everything, sends it at once while the descriptor takes it, and keeps
// the rest for flush(). Owns what was kept.
#pragma once

#include <openssl/types.h>

#include <cstddef>
#include <cstdint>
#include <vector>

namespace sluice::proxy {

struct TlsOutput {
  explicit TlsOutput(int descriptor, std::size_t limit) noexcept : descriptor(descriptor), limit(limit) {}

  [[nodiscard]] std::size_t unsent() const noexcept { return kept.size() - sent; }
  // Sends what was kept. 0: nothing is left; else errno, EAGAIN among them.
  [[nodiscard]] int flush() noexcept;
  // Sends or keeps. 0, or errno; ENOBUFS where more would have to be kept than the limit allows.
  [[nodiscard]] int put(const std::uint8_t* bytes, std::size_t size) noexcept;

  int descriptor;
  std::size_t limit;
  std::vector<std::uint8_t> kept;
  std::size_t sent = 0;  // of kept
};

// Null where memory has run out. The output must outlive it.
[[nodiscard]] BIO* new_output_bio(TlsOutput& output) noexcept;

}  // namespace sluice::proxy
