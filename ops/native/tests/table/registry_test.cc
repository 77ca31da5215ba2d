#include "core/table/registry.h"

#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "core/lmdb/records.h"
#include "core/lmdb/rows.h"
#include "tests/error_code.h"
#include "tests/serving/cut_blocks.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

constexpr int64_t kRows = 50;
constexpr RowVersion kExported = 3;

const StoredTable& table() {
  static const StoredTable t = stored_table("t", 4, StoredType::kFloat32, kRows);
  return t;
}

// A version with rows of one table in a store of files, bound as model m.
struct Version {
  Version() {
    const std::string rows = directory / "rows", assets = directory / "assets";
    std::filesystem::create_directory(assets);
    manifest = assets + "/manifest.json";
    std::ofstream(manifest) << R"({"generation": "g", "store": "file:rows", "tables": [)"
                               R"({"name": "t", "dim": 4, "default_value": 0.25, "rows": 50}]})";
    put(0, kRows, kExported);
    LmdbRecords(rows, true)
        .swap({{"generation/g", std::nullopt,
                R"({"format": 1, "generation": "g", "number": 1, "shards": 4, "epoch": 0, "seq": 3,
                  "state": "complete", "tables": [{"name": "t", "dim": 4, "row_type": "float32",
                  "default_value": 0.25, "rows": 50, "pages": 0}]})"}});
    ServingOptions options;
    options.cache.rows = 1000;
    bind_serving("m", 1, manifest, options);
  }
  ~Version() {
    unbind_serving("m", 1);
    unbind_serving("other", 1);
  }

  void put(int64_t first, int64_t last, RowVersion version) const {
    LmdbWriter writer(directory / "rows", "g", "t", table().row_bytes());
    for (int64_t key = first; key < last; ++key) {
      const std::vector<std::byte> row = stored_row(table(), 0, key, version);
      writer.put(&key, 1, row.data(), &version);
    }
  }
  std::string cut(int64_t first, int64_t last, RowVersion version) const {
    const std::string path = directory / std::to_string(version);
    Blocks({table()}, version).add(0, first, last).layer(path);
    return path;
  }

  TemporaryDirectory directory;
  std::string manifest;
};

// The row that requests to a servable get.
std::vector<float> served(const Served& by, int64_t key) {
  ServingFeature feature;
  feature.keys = &key;
  feature.segments.keys = feature.segments.samples = 1;
  std::vector<float> row(table().width);
  float* out = row.data();
  const auto rest = by.tables->begin(&feature, 1, &out, Executor(), {}, *by.overlay);
  if (rest != nullptr) rest->finish(Deadline::max(), Executor());
  return row;
}
std::vector<float> served(const char* name, int64_t key) {
  return served(find_serving(name, 1), key);
}
std::vector<float> row(int64_t key, RowVersion version) {
  return served_row(table(), 0, key, version);
}

}  // namespace

TEST_CASE("registry: servables that share tables show cuts of their own, in turns") {
  const Version version;
  share_serving("m", 1, "other");
  CHECK(error_code([] { share_serving("m", 1, "other"); }) == Code::kAlreadyExists);
  CHECK(error_code([] { share_serving("nobody", 1, "x"); }) == Code::kNotFound);
  CHECK(find_serving("other", 1).tables->id() == find_serving("m", 1).tables->id());
  const std::string blocks = version.cut(0, 10, 4);
  show_serving("other", 1, 4, {{blocks, 4}});
  for (int repeat = 0; repeat < 2; ++repeat) {
    CHECK(served("m", 5) == row(5, kExported));
    CHECK(served("other", 5) == row(5, 4));
    CHECK(served("other", 15) == row(15, kExported));
  }
  // A request keeps the tables that it began with.
  const Served before = find_serving("m", 1);
  show_serving("m", 1, 4, {{blocks, 4}});
  CHECK(served(before, 5) == row(5, kExported));
  CHECK(served("m", 5) == row(5, 4));
  // Folded: the layer is removed, and the cache has its rows.
  version.put(0, 10, 4);
  show_serving("m", 1, 4, {});
  show_serving("other", 1, 4, {});
  for (const char* name : {"m", "other"}) {
    CHECK(served(name, 5) == row(5, 4));
    CHECK(served(name, 15) == row(15, kExported));
  }
}

TEST_CASE("registry: rows that one of two servables must not see are read by the other alone") {
  const Version version;
  share_serving("m", 1, "other");
  version.put(0, 10, 4);  // of a cut that no version has taken
  for (const char* name : {"m", "other"}) {
    CHECK(error_code([&] { served(name, 5); }) == Code::kUnavailable);
  }
  show_serving("other", 1, 4, {});
  for (int repeat = 0; repeat < 2; ++repeat) {
    CHECK(served("other", 5) == row(5, 4));
    CHECK(error_code([] { served("m", 5); }) == Code::kUnavailable);
  }
  // The version that lagged behind is gone: the remaining rows may be cached.
  unbind_serving("m", 1);
  CHECK(served("other", 5) == row(5, 4));
  CHECK(error_code([] { served("m", 5); }) == Code::kUnavailable);
}

TEST_CASE("registry: a cut that cannot be read changes nothing") {
  const Version version;
  const std::string blocks = version.cut(0, 10, 4);
  show_serving("m", 1, 4, {{blocks, 4}});
  CHECK(error_code([&] { show_serving("m", 1, 5, {{blocks, 4}, {blocks + "gone", 5}}); }) ==
        Code::kNotFound);
  CHECK(served("m", 5) == row(5, 4));
  CHECK(find_serving("m", 1).overlay->version == 4);
  CHECK(error_code([&] { show_serving("nobody", 1, 4, {}); }) == Code::kNotFound);
}

TEST_CASE("registry: an attached manifest shows cuts, too, and fails rows of others until then") {
  const Version version;
  version.put(0, 10, 4);
  attach_serving(version.manifest, ServingOptions());
  CHECK(error_code([&] { served(open_serving(version.manifest), 5); }) ==
        Code::kFailedPrecondition);
  CHECK(served(open_serving(version.manifest), 15) == row(15, kExported));
  show_attached(version.manifest, 4, {});
  CHECK(served(open_serving(version.manifest), 5) == row(5, 4));
  detach_serving(version.manifest);
  CHECK(error_code([&] { show_attached(version.manifest, 4, {}); }) == Code::kNotFound);
}

}  // namespace hotrow
