// Whole numbers of JSON files and records that others may have written.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "core/status.h"

namespace hotrow {

constexpr uint64_t kWidestRow = uint64_t{1} << 24;

// A whole number in [least, most]; the JSON library would round, wrap or cut others.
inline uint64_t number_of(const nlohmann::json& entry, const char* name, uint64_t least,
                          uint64_t most) {
  const nlohmann::json& value = entry.at(name);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
      value.get<uint64_t>() > most) {
    fail(Code::kDataLoss, "%s is %s; legal are whole numbers from %llu to %llu", name,
         value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str(),
         static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
  }
  return value.get<uint64_t>();
}

}  // namespace hotrow
