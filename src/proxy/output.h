// Where a session's bytes go. Spans may point into the input that was handed in, and are only valid during the call:
// the receiver sends them from where they are, joining neighbours, and keeps a copy of what the descriptor did not
// take.
#pragma once

#include "wire/bytes.h"

namespace sluice::proxy {

class Output {
 public:
  virtual void to_client(wire::Bytes bytes) = 0;
  virtual void to_server(wire::Bytes bytes) = 0;

 protected:
  ~Output() = default;
};

}  // namespace sluice::proxy
