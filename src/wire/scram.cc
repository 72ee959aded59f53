#include "wire/scram.h"

#include <algorithm>

namespace sluice::wire {
namespace {

// What substr() does, without its exception: a place behind the end has nothing.
std::string_view part(std::string_view text, std::size_t from, std::size_t count = std::string_view::npos) noexcept {
  text.remove_prefix(std::min(from, text.size()));
  return {text.data(), std::min(count, text.size())};
}

constexpr char kBase64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

int base64_value(char c) noexcept {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  if (c == '+') return 62;
  return c == '/' ? 63 : -1;
}

// Takes "<name>=<value>" up to the next comma or the end. A NUL has no place in any of these texts.
bool take_attribute(std::string_view& message, char name, std::string_view& value) noexcept {
  if (message.size() < 2 || message[0] != name || message[1] != '=') return false;
  std::size_t comma = std::min(message.find(','), message.size());
  value = part(message, 2, comma - 2);
  message.remove_prefix(std::min(comma + 1, message.size()));
  return value.find('\0') == std::string_view::npos;
}

// Printable ASCII without commas, as RFC 5802 has it.
bool is_nonce(std::string_view nonce) noexcept {
  return !nonce.empty() && nonce.size() <= kMaxNonceBytes &&
         std::all_of(nonce.begin(), nonce.end(), [](char c) { return c > ' ' && c < 0x7F && c != ','; });
}

bool read_iterations(std::string_view text, std::uint32_t& iterations) noexcept {
  if (text.empty() || text.size() > 8 || text[0] == '0') return false;
  iterations = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    iterations = iterations * 10 + static_cast<std::uint32_t>(c - '0');
  }
  return iterations <= kMaxIterations;
}

bool is_salt(std::string_view salt) noexcept {
  std::uint8_t unused[kMaxSaltBytes];
  std::size_t length = 0;
  return read_base64(salt, unused, length) && length > 0;
}

bool read_key(std::string_view text, std::uint8_t (&key)[kScramKeyBytes]) noexcept {
  std::size_t length = 0;
  return read_base64(text, key, length) && length == kScramKeyBytes;
}

void write_text(ByteWriter& out, std::string_view text) noexcept { out.bytes(as_bytes(text)); }

}  // namespace

bool read_client_first(std::string_view message, ClientFirst& first) noexcept {
  first = {};
  if (message.empty()) return false;
  std::string_view rest = message;
  first.channel_binding = static_cast<ChannelBinding>(message[0]);
  if (message[0] == 'p') {
    if (!take_attribute(rest, 'p', first.binding_type) || first.binding_type.empty()) return false;
  } else if ((message[0] == 'n' || message[0] == 'y') && part(message, 1, 1) == ",") {
    rest.remove_prefix(2);
  } else {
    return false;
  }
  // An authorization identity, between two commas, is not supported: it would name another user than the one who logs
  // in.
  if (rest.empty() || rest[0] != ',') return false;
  rest.remove_prefix(1);
  first.gs2_header = part(message, 0, message.size() - rest.size());
  first.bare = rest;
  std::string_view user;
  return take_attribute(rest, 'n', user) && take_attribute(rest, 'r', first.nonce) && is_nonce(first.nonce);
}

bool read_server_first(std::string_view message, std::string_view client_nonce, ServerFirst& first) noexcept {
  first = {};
  std::string_view iterations;
  bool complete = take_attribute(message, 'r', first.nonce) && take_attribute(message, 's', first.salt) &&
                  take_attribute(message, 'i', iterations);
  return complete && is_nonce(first.nonce) && first.nonce.size() > client_nonce.size() &&
         first.nonce.starts_with(client_nonce) && is_salt(first.salt) && read_iterations(iterations, first.iterations);
}

bool read_client_final(std::string_view message, ClientFinal& final_message) noexcept {
  final_message = {};
  std::string_view rest = message;
  if (!take_attribute(rest, 'c', final_message.channel_binding) || !take_attribute(rest, 'r', final_message.nonce)) {
    return false;
  }
  // Optional extensions may stand in front of the proof, which is the last attribute.
  std::size_t at = message.rfind(",p=");
  if (at == std::string_view::npos || at + 1 < message.size() - rest.size()) return false;
  final_message.without_proof = part(message, 0, at);
  final_message.proof = part(message, at + 3);
  std::uint8_t key[kScramKeyBytes];
  return is_nonce(final_message.nonce) && read_key(final_message.proof, key);
}

bool read_server_final(std::string_view message, std::string_view& signature) noexcept {
  std::uint8_t key[kScramKeyBytes];
  return take_attribute(message, 'v', signature) && read_key(signature, key);
}

void write_client_first(ByteWriter& out, std::string_view gs2_header, std::string_view nonce) noexcept {
  write_text(out, gs2_header);
  write_text(out, "n=,r=");
  write_text(out, nonce);
}

void write_server_first(ByteWriter& out, std::string_view client_nonce, std::string_view server_nonce,
                        std::string_view salt, std::uint32_t iterations) noexcept {
  char digits[10];
  std::size_t at = sizeof(digits);
  do {
    digits[--at] = static_cast<char>('0' + iterations % 10);
    iterations /= 10;
  } while (iterations != 0);
  write_text(out, "r=");
  write_text(out, client_nonce);
  write_text(out, server_nonce);
  write_text(out, ",s=");
  write_text(out, salt);
  write_text(out, ",i=");
  write_text(out, {digits + at, sizeof(digits) - at});
}

void write_client_final(ByteWriter& out, std::string_view without_proof, std::string_view proof) noexcept {
  write_text(out, without_proof);
  write_text(out, ",p=");
  write_text(out, proof);
}

void write_server_final(ByteWriter& out, std::string_view signature) noexcept {
  write_text(out, "v=");
  write_text(out, signature);
}

void write_base64(ByteWriter& out, Bytes bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size(); at += 3) {
    std::size_t count = std::min<std::size_t>(3, bytes.size() - at);
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 3; i++) group = group << 8U | (i < count ? bytes[at + i] : 0U);
    for (std::size_t i = 0; i < 4; i++) {
      char c = i <= count ? kBase64[group >> (18U - 6U * i) & 63U] : '=';
      out.byte(static_cast<std::uint8_t>(c));
    }
  }
}

bool read_base64(std::string_view text, std::span<std::uint8_t> out, std::size_t& length) noexcept {
  length = 0;
  if (text.size() % 4 != 0) return false;
  std::size_t padding = text.ends_with("==") ? 2 : (text.ends_with("=") ? 1 : 0);
  if (text.size() / 4 * 3 - padding > out.size()) return false;
  for (std::size_t at = 0; at < text.size(); at += 4) {
    std::size_t digits = at + 4 == text.size() ? 4 - padding : 4;
    std::uint32_t group = 0;
    for (std::size_t i = 0; i < 4; i++) {
      int value = i < digits ? base64_value(text[at + i]) : 0;
      if (value < 0) return false;
      group = group << 6U | static_cast<std::uint32_t>(value);
    }
    // Bits that belong to no byte have to be zero, else two texts would mean the same.
    if ((digits == 3 && (group & 0xFFU) != 0) || (digits == 2 && (group & 0xFFFFU) != 0)) return false;
    for (std::size_t i = 0; i + 1 < digits; i++) out[length++] = static_cast<std::uint8_t>(group >> (16U - 8U * i));
  }
  return true;
}

bool read_scram_verifier(std::string_view text, ScramVerifier& verifier) noexcept {
  constexpr std::string_view kScheme = "SCRAM-SHA-256$";
  if (!text.starts_with(kScheme)) return false;
  text.remove_prefix(kScheme.size());
  std::size_t colon = text.find(':');
  std::size_t dollar = text.find('$');
  if (colon == std::string_view::npos || dollar == std::string_view::npos || dollar < colon) return false;
  std::string_view keys = part(text, dollar + 1);
  std::size_t between = keys.find(':');
  if (between == std::string_view::npos) return false;
  verifier.salt = part(text, colon + 1, dollar - colon - 1);
  return read_iterations(part(text, 0, colon), verifier.iterations) && is_salt(verifier.salt) &&
         read_key(part(keys, 0, between), verifier.stored_key) &&
         read_key(part(keys, between + 1), verifier.server_key);
}

}  // namespace sluice::wire
