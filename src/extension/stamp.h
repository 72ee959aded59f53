// What this library is: its version, and a stamp that differs whenever the layout of shared memory does, so that a
// library that was replaced under a running server recognizes a region it did not make.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "ledger/region.h"

#ifndef SLUICE_VERSION
#define SLUICE_VERSION "1.0"
#endif
#ifndef SLUICE_COMMIT
#define SLUICE_COMMIT ""
#endif

namespace sluice::extension {

inline constexpr char kVersion[] = SLUICE_VERSION;

namespace stamp_detail {

struct Text {
  char bytes[sizeof(ledger::Header::build_stamp)];
};

constexpr std::uint32_t mix(std::uint32_t hash, std::size_t value) {
  return (hash ^ static_cast<std::uint32_t>(value)) * 16777619U;  // FNV-1a, over sizes instead of bytes
}

constexpr Text make() {
  std::uint32_t hash = 2166136261U;
  for (const std::size_t size :
       {sizeof(ledger::Header), sizeof(ledger::Ticket), sizeof(ledger::Row), sizeof(ledger::ClassState),
        sizeof(ledger::Tenant), sizeof(ledger::Session), sizeof(ledger::Receipt), sizeof(ledger::Event),
        sizeof(ledger::RefusalCell), sizeof(policy::Policy), std::size_t{ledger::kLayoutVersion}}) {
    hash = mix(hash, size);
  }
  Text text = {};
  std::size_t length = 0;
  for (const char* part = SLUICE_VERSION; *part != '\0' && length < 10; part++) text.bytes[length++] = *part;
  text.bytes[length++] = '-';
  for (int shift = 28; shift >= 0; shift -= 4) text.bytes[length++] = "0123456789abcdef"[(hash >> shift) & 0xFU];
  if (SLUICE_COMMIT[0] != '\0') text.bytes[length++] = '-';
  for (const char* part = SLUICE_COMMIT; *part != '\0' && length + 1 < sizeof(text.bytes); part++)
    text.bytes[length++] = *part;
  return text;
}

inline constexpr Text kText = make();

}  // namespace stamp_detail

inline constexpr const char* kBuildStamp = stamp_detail::kText.bytes;

}  // namespace sluice::extension
