#include "core/store/stored_generation.h"

#include "core/base/json.h"
#include "core/store/store_layout.h"

namespace hotrow {

StoredGeneration parse_generation(const std::string& text) {
  StoredGeneration generation;
  try {
    const Json json = Json::parse(text);
    if (json.whole("format", 0, ~uint64_t{0}) != 1) {
      fail(
          Code::kDataLoss,
          "it is newer than this Hotrow (record format %s, this one reads up to 1); upgrade Hotrow",
          json.at("format").written().c_str());
    }
    generation.name = json.text("generation");
    generation.number = json.whole("number", 1, ~uint64_t{0} >> 1);
    generation.shards = json.whole("shards", 1, kMostStoreShards);
    generation.row_version = json.whole("epoch", 0, (uint64_t{1} << 23) - 1) << kSeqBits |
                             json.whole("seq", 0, (uint64_t{1} << kSeqBits) - 1);
    generation.complete = json.text("state") == "complete";
    for (const Json& entry : json.items("tables")) {
      StoredTable table;
      table.name = entry.text("name");
      table.width = entry.whole("dim", 1, kWidestRow);
      table.type = stored_type_of(entry.text("row_type").c_str());
      table.default_value = static_cast<float>(entry.number("default_value"));
      table.rows = entry.whole("rows", 0, ~uint64_t{0});
      table.pages = entry.whole("pages", 0, uint64_t{1} << 40);
      if (entry.has("planned_rows")) {
        table.planned_rows = entry.whole("planned_rows", 0, uint64_t{1} << 60);
      }
      generation.tables.push_back(std::move(table));
    }
  } catch (const Error& error) {
    fail(Code::kDataLoss, "the record of a generation is damaged: %s", error.what());
  }
  return generation;
}

}  // namespace hotrow
