// Whatever a client sends once it is logged in, to a session in front of a server that keeps to the protocol. The
// server must get sound messages, come back clean, and never seem broken; the client gets one ReadyForQuery for each
// Sync, and nothing it sent whole waits for ever.
#include <memory>
#include <string>
#include <utility>

#include "fuzz/checked_output.h"
#include "fuzz/input.h"
#include "fuzz/model_server.h"
#include "proxy/session.h"

namespace sluice::fuzz {
namespace {

using proxy::Discard;

proxy::SessionOptions make_options(std::uint8_t flags, proxy::PinBudget& pins) {
  constexpr proxy::Untracked kUntracked[] = {proxy::Untracked::refuse, proxy::Untracked::discard,
                                             proxy::Untracked::session, proxy::Untracked::refuse};
  proxy::SessionOptions options;
  options.profile = (flags & 1U) != 0 ? proxy::Profile::strict : proxy::Profile::compatible;
  options.untracked = kUntracked[flags >> 1U & 3U];
  options.keeps_server = (flags & 8U) != 0;
  options.pins = &pins;
  if ((flags & 16U) != 0) {
    options.max_owed_replies = 3;
    options.max_client_statements = 2;
    options.max_client_statement_bytes = 100;
    options.max_unnamed_statement_bytes = 20;
    options.max_server_statements = 1;
    options.max_server_statement_bytes = 100;
    options.max_settings = 2;
  }
  if ((flags & 32U) != 0) options.max_message_bytes = 64;
  return options;
}

class Scene {
 public:
  explicit Scene(const Input& input) : input_(input) {
    std::uint8_t flags = input_.byte();
    model_seed_ = input_.byte();
    input_.cut_by(input_.byte());
    slow_ = (flags & 64U) != 0;
    leaves_ = (flags & 128U) != 0 ? proxy::Departure::reset : proxy::Departure::in_order;
    options_ = make_options(flags, pins_);
    parameters_.set("client_encoding", "UTF8");
    parameters_.set("standard_conforming_strings", "on");
    proxy::Settings startup;
    if (options_.profile == proxy::Profile::compatible && model_seed_ % 3 == 1) startup.set("DateStyle", "German");
    session_ = std::make_unique<proxy::Session>(options_, 1, startup, parameters_);
    next_server();
  }

  void run() {
    while (!input_.empty() && !session_->done() && !session_->wants().close) {
      held_ += wire::as_text(input_.piece());
      settle(slow_);
    }
    settle(false);
    judge_rest();
    session_->client_gone(leaves_, now_, out_);
    settle(false);
    for (int i = 0; i < 4 && !session_->done() && session_->next_deadline() != proxy::kNever; i++) {
      now_ = session_->next_deadline();
      session_->tick(now_, out_);
      settle(false);
    }
    require(session_->done(), "a session whose client has left comes to its end");
    require(pins_.used == 0, "what was kept was given back");
  }

 private:
  void next_server() {
    server_ = std::make_unique<proxy::ServerState>("app", parameters_);
    model_ = std::make_unique<ModelServer>(model_seed_ == 0 ? 0 : model_seed_ + 256U * ++servers_);
    answers_.clear();
    out_.next_server();
  }

  // Everything goes on until nothing moves any more; a slow server leaves some for later.
  void settle(bool slowly) {
    for (bool moves = true; moves;) {
      moves = offer_client() || take_back();
      if (slowly && input_.random() % 2 == 0) return;
      moves = answer() || moves;
      moves = take_back() || moves;
    }
  }

  [[nodiscard]] bool offer_client() {
    bool moved = false;
    for (;;) {
      std::size_t taken = session_->take_client(wire::as_bytes(held_), now_, out_);
      require(taken <= held_.size(), "no more is taken than is there");
      count(std::string_view(held_).substr(0, taken));
      held_.erase(0, taken);
      bool wants_server = session_->wants().server;
      require(!wants_server || !session_->assigned(), "who has a server wants none");
      if (wants_server) session_->assign(*server_, now_, out_);
      if (taken == 0 && !wants_server) return moved;
      moved = true;
    }
  }

  void count(std::string_view taken) {
    wire::Bytes bytes = wire::as_bytes(taken);
    for (wire::Piece piece = walker_.next(bytes); piece.kind != wire::PieceKind::nothing; piece = walker_.next(bytes)) {
      if (piece.kind != wire::PieceKind::message && piece.kind != wire::PieceKind::partial_header) return;
      if (!piece.last || piece.kind != wire::PieceKind::message) continue;
      if (piece.type == 'S') syncs_++;
      if (piece.type == 'Q' || piece.type == 'F') queries_++;
    }
  }

  [[nodiscard]] bool answer() {
    if (!session_->assigned()) return false;
    bool sent = !out_.server.empty();
    answers_ += model_->take(std::exchange(out_.server, {}));
    std::size_t copies = model_->copies();
    if (copies > 0) copied_ = true;
    if (answers_.empty() && !model_->is_dead()) return sent;
    std::size_t size = slow_ && answers_.size() > 1 ? 1 + input_.random() % answers_.size() : answers_.size();
    std::string piece = answers_.substr(0, size);
    answers_.erase(0, size);
    session_->take_server(wire::as_bytes(piece), now_, out_);
    if (model_->is_dead() && answers_.empty() && session_->wants().discard == Discard::none) {
      session_->server_lost(now_, out_);
      next_server();
    }
    return true;
  }

  // What the pool does with what the session is done with.
  [[nodiscard]] bool take_back() {
    Discard discard = session_->wants().discard;
    require(discard != Discard::server_protocol, "a server that keeps to the protocol is not taken for a broken one");
    if (discard == Discard::server_fatal) require(model_->is_dead(), "a FATAL is there where one was seen");
    if (discard != Discard::none) {
      require(session_->release() == server_.get(), "it is the server that was given");
      next_server();
      return true;
    }
    if (!session_->wants().release) return false;
    std::string unanswered = model_->take(std::exchange(out_.server, {}));
    require(unanswered.empty() && answers_.empty(), "a released server has nothing more to say");
    require(model_->is_clean() && out_.server_is_between_messages(), "a released server is as new");
    require(session_->release() == server_.get(), "it is the server that was given");
    return true;
  }

  // Nothing moves any more: what the client sent whole was taken, and each Sync was answered.
  void judge_rest() {
    require(out_.client_ready <= syncs_ + queries_, "there is a reason for each ReadyForQuery");
    if (session_->wants().close) return;
    require(out_.client_is_between_messages(), "the client has whole messages");
    bool whole = held_.size() >= 5;
    if (whole) whole = held_.size() > wire::read_uint32(wire::as_bytes(held_).data() + 1);
    require(!whole, "a whole message does not wait when nothing moves");
    if (!copied_) require(out_.client_ready >= syncs_, "each Sync is answered");
  }

  Input input_;
  bool slow_ = false;
  proxy::Departure leaves_ = proxy::Departure::in_order;
  proxy::PinBudget pins_{1, 0};
  proxy::SessionOptions options_;
  proxy::Settings parameters_;
  std::uint32_t model_seed_ = 0;
  std::uint32_t servers_ = 0;
  std::unique_ptr<proxy::ServerState> server_;
  std::unique_ptr<ModelServer> model_;
  std::unique_ptr<proxy::Session> session_;
  CheckedOutput out_;
  std::string held_;
  std::string answers_;
  wire::HeaderWalker walker_{wire::Direction::frontend};
  std::size_t syncs_ = 0;
  std::size_t queries_ = 0;
  bool copied_ = false;
  proxy::Time now_ = 1000 * proxy::kSecond;
};

}  // namespace
}  // namespace sluice::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  sluice::fuzz::Scene(sluice::fuzz::Input(data, size)).run();
  return 0;
}
