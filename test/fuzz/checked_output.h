// An Output that reads along: both streams that leave the proxy must be streams of whole, known messages, whatever came
// in. Owns what the model behind it has not taken yet.
#pragma once

#include <string>
#include <utility>

#include "fuzz/require.h"
#include "proxy/output.h"
#include "wire/header_walker.h"

namespace sluice::fuzz {

class CheckedOutput final : public proxy::Output {
 public:
  explicit CheckedOutput(wire::Phase phase = wire::Phase::relay)
      : client_walker_(wire::Direction::backend, phase), server_walker_(wire::Direction::frontend, phase) {}

  void to_client(wire::Bytes bytes) override {
    client += wire::as_text(bytes);
    for (;;) {
      wire::Piece piece = client_walker_.next(bytes);
      if (piece.kind == wire::PieceKind::nothing) return;
      require(piece.kind != wire::PieceKind::unknown_type, "the client gets known messages only");
      require(piece.kind != wire::PieceKind::invalid_length, "the client gets messages of sound lengths only");
      if (piece.kind == wire::PieceKind::message && piece.last && piece.type == 'Z') client_ready++;
    }
  }

  void to_server(wire::Bytes bytes) override {
    server += wire::as_text(bytes);
    for (;;) {
      wire::Piece piece = server_walker_.next(bytes);
      if (piece.kind == wire::PieceKind::nothing) return;
      require(piece.kind != wire::PieceKind::unknown_type, "the server gets known messages only");
      require(piece.kind != wire::PieceKind::invalid_length, "the server gets messages of sound lengths only");
      require(piece.type != 'X' || piece.kind != wire::PieceKind::message, "a client's Terminate ends no server");
    }
  }

  [[nodiscard]] bool client_is_between_messages() const { return client_walker_.between_messages(); }
  [[nodiscard]] bool server_is_between_messages() const { return server_walker_.between_messages(); }

  // A new server: its stream begins anew.
  void next_server() {
    server.clear();
    server_walker_ = wire::HeaderWalker(wire::Direction::frontend);
  }

  std::string client;
  std::string server;
  std::size_t client_ready = 0;  // ReadyForQuery that the client got

 private:
  wire::HeaderWalker client_walker_;
  wire::HeaderWalker server_walker_;
};

}  // namespace sluice::fuzz
