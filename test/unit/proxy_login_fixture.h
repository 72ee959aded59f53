// What the tests of the logins share: an Output that keeps what is sent, messages made and taken apart.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "proxy/output.h"
#include "wire/bytes.h"
#include "wire/error_response.h"
#include "wire/startup.h"

namespace sluice::proxy {

struct SentMessage {
  char type = 0;
  std::string payload;
};

class Recorder : public Output {
 public:
  void to_client(wire::Bytes bytes) override { client += wire::as_text(bytes); }
  void to_server(wire::Bytes bytes) override { server += wire::as_text(bytes); }

  // What was sent since the last time, cut into messages.
  [[nodiscard]] std::vector<SentMessage> take_client() { return take(client); }
  [[nodiscard]] std::vector<SentMessage> take_server() { return take(server); }

  // The letters of the messages sent to the client, such as "RSSKZ".
  [[nodiscard]] std::string take_client_types() {
    std::string types;
    for (const SentMessage& message : take_client()) types += message.type;
    return types;
  }

  std::string client;
  std::string server;

 private:
  static std::vector<SentMessage> take(std::string& sent) {
    std::vector<SentMessage> messages;
    std::string_view rest = sent;
    while (!rest.empty()) {
      EXPECT_GE(rest.size(), 5U) << "half a message was sent";
      if (rest.size() < 5) break;
      std::size_t length = wire::read_uint32(wire::as_bytes(rest).data() + 1);
      EXPECT_LE(length + 1, rest.size()) << "half a message was sent";
      if (length + 1 > rest.size()) break;
      messages.push_back({rest[0], std::string(rest.substr(5, length - 4))});
      rest.remove_prefix(length + 1);
    }
    sent.clear();
    return messages;
  }
};

inline std::string big_endian(std::uint32_t value) {
  std::string text;
  for (unsigned shift = 24;; shift -= 8) {
    text += static_cast<char>(value >> shift & 0xFFU);
    if (shift == 0) return text;
  }
}

inline std::string made_message(char type, std::string_view payload) {
  std::string message(type == 0 ? 0 : 1, type);
  return message + big_endian(static_cast<std::uint32_t>(payload.size() + 4)) + std::string(payload);
}

inline std::string made_startup(std::uint32_t version, const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string body = big_endian(version);
  for (const auto& [name, value] : pairs) body += name + '\0' + value + '\0';
  return made_message(0, body + '\0');
}

// AuthenticationSASL and its like.
inline std::string made_authentication(std::uint32_t code, std::string_view data = {}) {
  return made_message('R', big_endian(code) + std::string(data));
}

inline std::string made_error(std::string_view severity, std::string_view sqlstate, std::string_view message) {
  std::string fields;
  fields += "S" + std::string(severity) + '\0' + "V" + std::string(severity) + '\0' + "C" + std::string(sqlstate);
  fields += '\0' + ("M" + std::string(message)) + '\0' + '\0';
  return made_message('E', fields);
}

// "SEVERITY SQLSTATE message" of an ErrorResponse.
inline std::string error_of(const SentMessage& message) {
  EXPECT_EQ(message.type, 'E');
  wire::ErrorFields fields;
  if (!wire::read_error(wire::as_bytes(message.payload), fields)) return "malformed";
  return std::string(fields.severity()) + " " + std::string(fields.sqlstate()) + " " + std::string(fields.message());
}

}  // namespace sluice::proxy
