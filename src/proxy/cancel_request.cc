#include "proxy/cancel_request.h"

#include <array>
#include <utility>

#include "wire/startup.h"

namespace sluice::proxy {

CancelRequest::CancelRequest(ChannelHub& hub, const ServerTarget& target, std::uint32_t process_id, wire::Bytes key,
                             Time timeout, Done done)
    : tls_(target.login.tls ? target.tls : nullptr),
      host_(target.host),
      packet_(16 + key.size()),
      done_(std::move(done)),
      limit_(hub.loop(), [this] { finish(CancelOutcome::timed_out); }),
      deadline_(hub.loop().now() + timeout),
      channel_(std::make_unique<Channel>(hub, Stream::connect(target.address, target.socket), *this)) {
  wire::ByteWriter out(packet_);
  wire::write_cancel_request(out, {process_id, key});
  packet_.resize(out.length());
}

void CancelRequest::start() {
  if (channel_->closed()) {
    finish(CancelOutcome::failed);
    return;
  }
  limit_.set(deadline_);
  channel_->begin_step(true);
}

bool CancelRequest::withdraw() {
  if (phase_ == Phase::sent || phase_ == Phase::finished) return false;
  finish(CancelOutcome::failed);
  return true;
}

void CancelRequest::channel_step(Channel&) {
  if (phase_ == Phase::tls_handshake) {
    handshake();
    return;
  }
  StreamStatus status = channel_->stream().finish_connect();
  if (status == StreamStatus::would_block) return;
  if (status != StreamStatus::done) {
    finish(CancelOutcome::failed);
    return;
  }
  connected();
}

void CancelRequest::connected() {
  channel_->end_step();
  if (tls_ == nullptr) {
    send_request();
    return;
  }
  phase_ = Phase::asking_tls;
  std::array<std::uint8_t, 8> ask;
  wire::ByteWriter out(ask);
  wire::write_ssl_request(out);
  channel_->send(out.written());
}

void CancelRequest::channel_received(Channel&, wire::Bytes bytes) {
  if (phase_ != Phase::asking_tls) return;  // a server says nothing to a CancelRequest
  if (bytes.size() != 1 || bytes[0] != 'S' || !channel_->stream().start_tls(*tls_, host_)) {
    finish(CancelOutcome::failed);
    return;
  }
  phase_ = Phase::tls_handshake;
  channel_->begin_step(false);
  handshake();
}

void CancelRequest::handshake() {
  StreamStatus status = channel_->stream().handshake();
  if (status == StreamStatus::would_block) return;
  if (status != StreamStatus::done) {
    finish(CancelOutcome::failed);
    return;
  }
  channel_->end_step();
  send_request();
}

void CancelRequest::send_request() {
  phase_ = Phase::sent;
  channel_->send(packet_);
}

void CancelRequest::channel_ended(Channel&, StreamStatus) {
  finish(phase_ == Phase::sent ? CancelOutcome::delivered : CancelOutcome::failed);
}

void CancelRequest::finish(CancelOutcome result) {
  if (phase_ == Phase::finished) return;
  phase_ = Phase::finished;
  limit_.cancel();
  channel_->close();
  done_(*this, result);
}

}  // namespace sluice::proxy
