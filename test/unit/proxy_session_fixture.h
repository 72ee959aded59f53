// A session with everything around it played by the test: bytes in, bytes out, shown as lines a person can read.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "proxy/session.h"

namespace sluice::proxy {

inline std::string message(char type, std::string_view payload = {}) {
  auto length = static_cast<std::uint32_t>(payload.size() + 4);
  std::string bytes(1, type);
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(length >> shift));
  return bytes.append(payload);
}

inline std::string terminated(std::string_view text) { return std::string(text) + '\0'; }

// The client's messages.
inline std::string query(std::string_view text) { return message('Q', terminated(text)); }
inline std::string parse(std::string_view name, std::string_view text) {
  return message('P', terminated(name) + terminated(text) + std::string(2, '\0'));
}
inline std::string bind(std::string_view portal, std::string_view name) {
  return message('B', terminated(portal) + terminated(name) + std::string(6, '\0'));
}
inline std::string describe(char target, std::string_view name) { return message('D', target + terminated(name)); }
inline std::string close(char target, std::string_view name) { return message('C', target + terminated(name)); }
inline std::string execute(std::string_view portal = {}) {
  return message('E', terminated(portal) + std::string(4, '\0'));
}
inline std::string sync() { return message('S'); }
inline std::string flush() { return message('H'); }

// The server's.
inline std::string ready(char status = 'I') { return message('Z', std::string(1, status)); }
inline std::string tag(std::string_view text) { return message('C', terminated(text)); }
inline std::string error(std::string_view sqlstate, std::string_view text, std::string_view severity = "ERROR") {
  return message('E', "S" + terminated(severity) + "V" + terminated(severity) + "C" + terminated(sqlstate) + "M" +
                          terminated(text) + '\0');
}
inline std::string parameter(std::string_view name, std::string_view value) {
  return message('S', terminated(name) + terminated(value));
}
inline std::string row(const std::vector<std::string>& values) {
  std::string payload = {static_cast<char>(values.size() >> 8U), static_cast<char>(values.size())};
  for (const std::string& value : values) {
    for (int shift = 24; shift >= 0; shift -= 8) payload.push_back(static_cast<char>(value.size() >> shift));
    payload += value;
  }
  return message('D', payload);
}
inline std::string columns() { return message('T', std::string(2, '\0')); }

// "Z(I) E(22012: division by zero) 1": types, and the payload where it says something.
inline std::string shown(std::string_view bytes) {
  std::string all;
  while (bytes.size() >= 5) {
    std::size_t length = wire::read_uint32(reinterpret_cast<const std::uint8_t*>(bytes.data()) + 1) + 1;
    if (length > bytes.size()) break;
    if (!all.empty()) all += ' ';
    all += bytes[0];
    std::string_view payload = bytes.substr(5, length - 5);
    wire::ErrorFields fields;
    if (bytes[0] == 'E' && wire::read_error(wire::as_bytes(payload), fields)) {
      all += "(" + (fields.severity() == "ERROR" ? "" : std::string(fields.severity()) + " ") +
             std::string(fields.sqlstate()) + ": " + std::string(fields.message()) + ")";
    } else if (!payload.empty()) {
      std::string text;
      for (char c : payload) {
        if (c >= ' ' && c <= '~') text += c;
        if (c == 0 && !text.empty() && text.back() != ',') text += ',';
      }
      while (!text.empty() && text.back() == ',') text.pop_back();
      if (!text.empty()) all += "(" + text + ")";
    }
    bytes.remove_prefix(length);
  }
  if (!bytes.empty()) all += " +" + std::to_string(bytes.size()) + " bytes";
  return all;
}

class Recorder : public Output {
 public:
  void to_client(wire::Bytes bytes) override { client += wire::as_text(bytes); }
  void to_server(wire::Bytes bytes) override {
    server += wire::as_text(bytes);
    server_calls++;
  }
  std::string client;
  std::string server;
  std::size_t server_calls = 0;
};

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    parameters_.set("client_encoding", "UTF8");
    parameters_.set("standard_conforming_strings", "on");
    server_ = fresh_server();
  }

  std::unique_ptr<ServerState> fresh_server() { return std::make_unique<ServerState>("app", parameters_); }

  Session& session() {
    if (session_ == nullptr) session_ = std::make_unique<Session>(options_, 1, startup_, parameters_);
    return *session_;
  }

  // What the client sends; what the session leaves is kept, as the owner keeps it. A server is given when it is wanted.
  void send(std::string_view bytes) {
    input_ += bytes;
    for (;;) {
      std::size_t taken = session().take_client(wire::as_bytes(input_), now_, out_);
      input_.erase(0, taken);
      if (session().wants().server && give_) {
        session().assign(*server_, now_, out_);
      } else if (taken == 0) {
        return;
      }
    }
  }

  // What the server answers; then the client's bytes are offered again, and a released server is taken back.
  void answer(std::string_view bytes) {
    session().take_server(wire::as_bytes(bytes), now_, out_);
    if (session().wants().release || session().wants().discard != Discard::none) return;
    send({});
  }

  // Answers, and takes the server back as the pool does.
  void answer_and_release(std::string_view bytes) {
    answer(bytes);
    ASSERT_TRUE(session().wants().release);
    ASSERT_EQ(session().release(), server_.get());
    send({});
  }

  std::string client() { return shown(std::exchange(out_.client, {})); }
  std::string server() { return shown(std::exchange(out_.server, {})); }

  SessionOptions options_;
  Settings startup_;
  Settings parameters_;
  std::unique_ptr<ServerState> server_;
  std::unique_ptr<Session> session_;
  Recorder out_;
  std::string input_;
  Time now_ = 1000 * kSecond;
  bool give_ = true;
};

}  // namespace sluice::proxy
