// The parts of a version's manifest (assets/hotrow_manifest.json) that lookups need.
#pragma once

#include <string>
#include <vector>

namespace hotrow {

struct ManifestTable {
  std::string name;
  size_t width = 0;  // D
  float default_value = 0.0f;
  size_t rows = 0;
};

struct Manifest {
  std::string generation;
  std::string store;  // file://..., or relative to the version directory: file:rows
  std::vector<ManifestTable> tables;
};

// path: of the JSON file. Fails with NotFound, or DataLoss when it is not a manifest.
Manifest read_manifest(const std::string& path);

// The directory of a file: URL. A relative one starts at the version directory, which holds the
// manifest's folder. Fails with FailedPrecondition for another URL.
std::string store_directory(const std::string& url, const std::string& manifest_path);

}  // namespace hotrow
