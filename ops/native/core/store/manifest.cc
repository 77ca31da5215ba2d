#include "core/store/manifest.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/base/json.h"
#include "core/store/store_layout.h"

namespace hotrow {
Manifest read_manifest(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(Code::kNotFound, "manifest %s cannot be read", path.c_str());
  Manifest manifest;
  try {
    std::ostringstream text;
    text << file.rdbuf();
    const Json json = Json::parse(text.str());
    manifest.generation = json.text("generation");
    manifest.store = json.text("store");
    for (const Json& entry : json.items("tables")) {
      ManifestTable table;
      table.name = entry.text("name");
      table.width = entry.whole("dim", 1, kWidestRow);
      table.default_value = static_cast<float>(entry.number("default_value"));
      table.rows = entry.whole("rows", 0, ~uint64_t{0});
      manifest.tables.push_back(std::move(table));
    }
  } catch (const Error& error) {
    fail(Code::kDataLoss, "manifest %s is damaged: %s", path.c_str(), error.what());
  }
  return manifest;
}

std::string store_directory(const std::string& url, const std::string& manifest_path) {
  const std::string absolute = "file://", relative = "file:";
  if (url.rfind(absolute, 0) == 0) return url.substr(absolute.size());
  const std::filesystem::path version =
      std::filesystem::absolute(manifest_path).lexically_normal().parent_path().parent_path();
  if (url.rfind(relative, 0) == 0) {
    return (version / url.substr(relative.size())).lexically_normal().string();
  }
  fail(Code::kFailedPrecondition,
       "store %s: not in files, so it is opened by `with hotrow.bind(\"%s\"):` around the lookups, "
       "or by `platform serve`",
       url.c_str(), version.c_str());
}

}  // namespace hotrow
