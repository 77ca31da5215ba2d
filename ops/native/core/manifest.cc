#include "core/manifest.h"

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/status.h"

namespace hotrow {
namespace {

constexpr uint64_t kWidest = uint64_t{1} << 24;

// A whole number in [least, most]; the JSON library would round, wrap or cut others.
uint64_t number_of(const nlohmann::json& entry, const char* name, uint64_t least, uint64_t most) {
  const nlohmann::json& value = entry.at(name);
  if (!value.is_number_unsigned() || value.get<uint64_t>() < least ||
      value.get<uint64_t>() > most) {
    fail(Code::kDataLoss, "%s is %s; legal are whole numbers from %llu to %llu", name,
         value.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).c_str(),
         static_cast<unsigned long long>(least), static_cast<unsigned long long>(most));
  }
  return value.get<uint64_t>();
}

}  // namespace

Manifest read_manifest(const std::string& path) {
  std::ifstream file(path);
  if (!file) fail(Code::kNotFound, "manifest %s cannot be read", path.c_str());
  Manifest manifest;
  try {
    const nlohmann::json json = nlohmann::json::parse(file);
    manifest.generation = json.at("generation").get<std::string>();
    manifest.store = json.at("store").get<std::string>();
    for (const auto& entry : json.at("tables")) {
      ManifestTable table;
      table.name = entry.at("name").get<std::string>();
      table.width = number_of(entry, "dim", 1, kWidest);
      table.default_value = entry.at("default_value").get<float>();
      table.rows = number_of(entry, "rows", 0, ~uint64_t{0});
      manifest.tables.push_back(std::move(table));
    }
  } catch (const nlohmann::json::exception& error) {
    fail(Code::kDataLoss, "manifest %s is damaged: %s", path.c_str(), error.what());
  } catch (const Error& error) {
    fail(Code::kDataLoss, "manifest %s is damaged: %s", path.c_str(), error.what());
  }
  return manifest;
}

std::string store_directory(const std::string& url, const std::string& manifest_path) {
  const std::string absolute = "file://", relative = "file:";
  if (url.rfind(absolute, 0) == 0) return url.substr(absolute.size());
  if (url.rfind(relative, 0) == 0) {
    const std::filesystem::path version =
        std::filesystem::absolute(manifest_path).parent_path().parent_path();
    return (version / url.substr(relative.size())).lexically_normal().string();
  }
  fail(Code::kUnimplemented, "store %s: only file:// stores are built so far", url.c_str());
}

}  // namespace hotrow
