#include "core/stored_generation.h"

#include <nlohmann/json.hpp>

#include "core/json_number.h"
#include "core/store_layout.h"

namespace hotrow {

StoredGeneration parse_generation(const std::string& text) {
  StoredGeneration generation;
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    if (number_of(json, "format", 0, ~uint64_t{0}) != 1) {
      fail(Code::kDataLoss, "its format is %s; this version of Hotrow reads format 1",
           json.at("format").dump().c_str());
    }
    generation.name = json.at("generation").get<std::string>();
    generation.number = number_of(json, "number", 1, ~uint64_t{0} >> 1);
    generation.shards = number_of(json, "shards", 1, kMostStoreShards);
    generation.row_version = number_of(json, "epoch", 0, (uint64_t{1} << 23) - 1) << kSeqBits |
                             number_of(json, "seq", 0, (uint64_t{1} << kSeqBits) - 1);
    generation.complete = json.at("state").get<std::string>() == "complete";
    for (const auto& entry : json.at("tables")) {
      StoredTable table;
      table.name = entry.at("name").get<std::string>();
      table.width = number_of(entry, "dim", 1, kWidestRow);
      table.type = stored_type_of(entry.at("row_type").get<std::string>().c_str());
      table.default_value = entry.at("default_value").get<float>();
      table.rows = number_of(entry, "rows", 0, ~uint64_t{0});
      table.pages = number_of(entry, "pages", 0, uint64_t{1} << 40);
      generation.tables.push_back(std::move(table));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::kDataLoss, "the record of a generation is damaged: %s", error.what());
  } catch (const Error& error) {
    fail(Code::kDataLoss, "the record of a generation is damaged: %s", error.what());
  }
  return generation;
}

}  // namespace hotrow
