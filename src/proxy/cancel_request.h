// A cancel on its way to the server: a connection of its own, the CancelRequest, and the wait for the server to close
// it. Only then has the signal been sent, so whoever reuses the backend before may see a stranger's cancel. Owns its
// channel; ends by itself, at the latest at its time limit.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "proxy/channel.h"
#include "proxy/server_connection.h"

namespace sluice::proxy {

enum class CancelOutcome : std::uint8_t { delivered, failed, timed_out };

class CancelRequest final : public ChannelHandler {
 public:
  using Done = std::function<void(CancelRequest& request, CancelOutcome result)>;

  // `target` as of the backend's own connection: the same address, the same TLS. `done` is told once and must not
  // destroy the request before the turn has ended.
  CancelRequest(ChannelHub& hub, const ServerTarget& target, std::uint32_t process_id, wire::Bytes key, Time timeout,
                Done done);

  void start();
  // The assignment is over: if nothing has been sent yet, nothing will be. True if so.
  [[nodiscard]] bool withdraw();

 private:
  enum class Phase : std::uint8_t { connecting, asking_tls, tls_handshake, sent, finished };

  void channel_received(Channel& channel, wire::Bytes bytes) override;
  void channel_step(Channel& channel) override;
  void channel_ended(Channel& channel, StreamStatus how) override;
  void channel_drained(Channel&) override {}

  void connected();
  void handshake();
  void send_request();
  void finish(CancelOutcome result);

  const TlsClientContext* tls_;
  std::string host_;
  std::vector<std::uint8_t> packet_;
  Done done_;
  Timer limit_;
  Time deadline_;
  std::unique_ptr<Channel> channel_;
  Phase phase_ = Phase::connecting;
};

}  // namespace sluice::proxy
