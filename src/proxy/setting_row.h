// How rows of the setting table are made: each names the member that holds its value, by a path from Config or
// PoolConfig, and from the member's type and unit come reading and writing.
#pragma once

#include <limits>
#include <type_traits>

#include "proxy/setting_table.h"

namespace sluice::proxy::setting_row {

template <typename Member>
struct MemberOf;
template <typename Class, typename Type>
struct MemberOf<Type Class::*> {
  using Owner = Class;
};

template <auto First, auto... Rest>
auto& reach(auto& object) {
  auto& member = object.*First;
  if constexpr (sizeof...(Rest) == 0) {
    return member;
  } else {
    return reach<Rest...>(member);
  }
}

// The member that a path leads to, from whichever of the two roots it begins at.
template <auto First, auto... Rest>
auto& member_of(auto& config, auto& pool) {
  if constexpr (std::is_same_v<typename MemberOf<decltype(First)>::Owner, Config>) {
    return reach<First, Rest...>(config);
  } else {
    return reach<First, Rest...>(pool);
  }
}

// A stored value is the written one times `Unit`. `Special` is how a written value beyond the ordinary ones is stored.
struct Special {
  std::int64_t written;
  std::int64_t stored;
};
inline constexpr Special kNoSpecial{std::numeric_limits<std::int64_t>::min(), std::numeric_limits<std::int64_t>::min()};
inline constexpr Special kZeroIsNever{0, kNever};
inline constexpr Special kMinusOneIsUnlimited{-1, kNoPoolLimit};

template <std::int64_t Unit, Special Exception, auto... Path>
constexpr SettingRow number(std::string_view key, std::int64_t minimum, std::int64_t maximum, std::string_view meaning,
                            SettingTraits traits) {
  return {key,
          SettingKind::integer,
          minimum,
          maximum,
          meaning,
          {},
          traits,
          [](const Config& config, const PoolConfig& pool) {
            auto stored = static_cast<std::int64_t>(member_of<Path...>(config, pool));
            return SettingValue{stored == Exception.stored ? Exception.written : stored / Unit, "", {}};
          },
          [](Config& config, PoolConfig& pool, const SettingValue& value) {
            auto& member = member_of<Path...>(config, pool);
            member = static_cast<std::remove_reference_t<decltype(member)>>(
                value.number == Exception.written ? Exception.stored : value.number * Unit);
          }};
}

template <auto... Path>
constexpr SettingRow count(std::string_view key, std::int64_t minimum, std::int64_t maximum, std::string_view meaning,
                           SettingTraits traits = {}) {
  return number<1, kNoSpecial, Path...>(key, minimum, maximum, meaning, traits);
}

// -1 is written where there is no limit.
template <auto... Path>
constexpr SettingRow count_or_unlimited(std::string_view key, std::int64_t maximum, std::string_view meaning,
                                        SettingTraits traits = {}) {
  return number<1, kMinusOneIsUnlimited, Path...>(key, -1, maximum, meaning, traits);
}

template <auto... Path>
constexpr SettingRow milliseconds(std::string_view key, std::int64_t minimum, std::int64_t maximum,
                                  std::string_view meaning, SettingTraits traits = {}) {
  return number<kMillisecond, kNoSpecial, Path...>(key, minimum, maximum, meaning, traits);
}

// 0 is written where there is no such limit.
template <auto... Path>
constexpr SettingRow milliseconds_or_never(std::string_view key, std::int64_t maximum, std::string_view meaning,
                                           SettingTraits traits = {}) {
  return number<kMillisecond, kZeroIsNever, Path...>(key, 0, maximum, meaning, traits);
}

template <auto... Path>
constexpr SettingRow boolean(std::string_view key, std::string_view meaning, SettingTraits traits = {}) {
  SettingRow row = number<1, kNoSpecial, Path...>(key, 0, 1, meaning, traits);
  row.kind = SettingKind::boolean;
  return row;
}

template <auto... Path>
constexpr SettingRow choice(std::string_view key, std::span<const SettingChoice> choices, std::string_view meaning,
                            SettingTraits traits = {}) {
  SettingRow row = number<1, kNoSpecial, Path...>(key, 0, 0, meaning, traits);
  row.kind = SettingKind::choice;
  row.choices = choices;
  return row;
}

template <auto... Path>
constexpr SettingRow text(std::string_view key, std::string_view meaning, SettingTraits traits = {}) {
  return {key,
          SettingKind::text,
          0,
          0,
          meaning,
          {},
          traits,
          [](const Config& config, const PoolConfig& pool) {
            return SettingValue{0, member_of<Path...>(config, pool), {}};
          },
          [](Config& config, PoolConfig& pool, const SettingValue& value) {
            member_of<Path...>(config, pool) = value.text;
          }};
}

template <auto... Path>
constexpr SettingRow list(std::string_view key, std::string_view meaning, SettingTraits traits = {}) {
  return {key,
          SettingKind::list,
          0,
          0,
          meaning,
          {},
          traits,
          [](const Config& config, const PoolConfig& pool) {
            return SettingValue{0, "", member_of<Path...>(config, pool)};
          },
          [](Config& config, PoolConfig& pool, const SettingValue& value) {
            member_of<Path...>(config, pool) = value.list;
          }};
}

}  // namespace sluice::proxy::setting_row
