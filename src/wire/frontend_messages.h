// The messages of the client that a proxy reads or makes itself. Bind and Parse may be as long as memory, so of them
// only the names at the beginning are read, from as much of the payload as has arrived, and their heads are written
// anew with the same rest behind them: that is how a client's statement name becomes the server's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "wire/bytes.h"

namespace sluice::wire {

enum class Reading : std::uint8_t {
  complete,
  need_more,  // the names are not there yet
  invalid,    // the payload is whole and they are not in it: 08P01
};

struct ParseHead {
  std::string_view statement;
  std::size_t size;  // bytes of the payload in front of the query text
};
struct BindHead {
  std::string_view portal;
  std::string_view statement;
  std::size_t size;  // bytes of the payload in front of the parameter formats
};

// `whole` says that `payload` is all of the message and not its beginning only.
[[nodiscard]] Reading read_parse_head(Bytes payload, bool whole, ParseHead& head) noexcept;
[[nodiscard]] Reading read_bind_head(Bytes payload, bool whole, BindHead& head) noexcept;

// Type, length and names of a message that goes on with `rest` bytes of the original payload.
void write_parse_head(ByteWriter& out, std::string_view statement, std::uint32_t rest) noexcept;
void write_bind_head(ByteWriter& out, std::string_view portal, std::string_view statement, std::uint32_t rest) noexcept;

struct Parse {
  std::string_view statement;
  std::string_view query;
  Bytes types;  // four bytes each
};
[[nodiscard]] bool read_parse(Bytes payload, Parse& parse) noexcept;
void write_parse(ByteWriter& out, const Parse& parse) noexcept;

enum class Target : std::uint8_t { statement = 'S', portal = 'P' };

// Describe and Close. Other targets than the two are an error of the server's to report, so they are only not read.
struct Named {
  Target target;
  std::string_view name;
};
[[nodiscard]] bool read_named(Bytes payload, Named& named) noexcept;
void write_describe(ByteWriter& out, const Named& named) noexcept;
void write_close(ByteWriter& out, const Named& named) noexcept;

struct Execute {
  std::string_view portal;
  std::uint32_t max_rows;  // 0: all
};
[[nodiscard]] bool read_execute(Bytes payload, Execute& execute) noexcept;
void write_execute(ByteWriter& out, const Execute& execute) noexcept;

[[nodiscard]] bool read_query(Bytes payload, std::string_view& query) noexcept;
void write_query(ByteWriter& out, std::string_view query) noexcept;

void write_sync(ByteWriter& out) noexcept;
void write_flush(ByteWriter& out) noexcept;
void write_terminate(ByteWriter& out) noexcept;

// 'p' has no type of its own: what it is depends on what the server asked for.
[[nodiscard]] bool read_password(Bytes payload, std::string_view& password) noexcept;
void write_password(ByteWriter& out, std::string_view password) noexcept;

struct SaslInitialResponse {
  std::string_view mechanism;
  Bytes data;  // empty as well where the client sent none
};
[[nodiscard]] bool read_sasl_initial_response(Bytes payload, SaslInitialResponse& response) noexcept;
void write_sasl_initial_response(ByteWriter& out, const SaslInitialResponse& response) noexcept;
void write_sasl_response(ByteWriter& out, Bytes data) noexcept;

}  // namespace sluice::wire
