// Joins spans that lie behind one another, so that a batch that is forwarded as it came is one call and not one a
// message.
#pragma once

#include <cstdint>

#include "proxy/output.h"

namespace sluice::proxy {

class SpanJoiner {
 public:
  enum class Way : std::uint8_t { to_client, to_server };

  explicit SpanJoiner(Way way) noexcept : way_(way) {}

  void begin(Output* out) noexcept { out_ = out; }

  void add(wire::Bytes bytes) noexcept {
    if (bytes.empty()) return;
    if (joined_.empty() || joined_.data() + joined_.size() != bytes.data()) {
      flush();
      joined_ = bytes;
    } else {
      joined_ = {joined_.data(), joined_.size() + bytes.size()};
    }
  }

  void flush() noexcept {
    if (!joined_.empty()) {
      if (way_ == Way::to_client) {
        out_->to_client(joined_);
      } else {
        out_->to_server(joined_);
      }
    }
    joined_ = {};
  }

 private:
  Output* out_ = nullptr;
  wire::Bytes joined_;
  Way way_;
};

}  // namespace sluice::proxy
