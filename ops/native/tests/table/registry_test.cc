#include "core/table/registry.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

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
  CHECK(error_code([] { share_serving("another", 1, "x"); }) == Code::kNotFound);
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
  CHECK(error_code([&] { show_serving("another", 1, 4, {}); }) == Code::kNotFound);
}

TEST_CASE("registry: merged layers read as those that they came from, whatever is folded") {
  for (unsigned seed = 0; seed < 8; ++seed) {
    CAPTURE(seed);
    const Version version;
    share_serving("m", 1, "other");
    std::mt19937 random(seed);
    struct Cut {
      LayerFile file;
      int64_t first, last;
    };
    std::vector<Cut> cuts;  // the oldest first
    size_t folded = 0, most_layers = 0;
    // Of cuts `from` to `count`, the newest first.
    const auto layers = [&](size_t from, size_t count) {
      std::vector<LayerFile> files;
      for (size_t i = count; i-- > from;) files.push_back(cuts[i].file);
      return files;
    };
    const auto check = [&](const char* name, size_t count) {
      for (int64_t key = 0; key < kRows; ++key) {
        RowVersion newest = kExported;
        for (size_t i = 0; i < count; ++i) {
          if (cuts[i].first <= key && key < cuts[i].last) newest = cuts[i].file.version;
        }
        REQUIRE(served(name, key) == row(key, newest));
      }
      most_layers = std::max(most_layers, find_serving(name, 1).overlay->layers.size());
    };
    const auto merge = [&](const char* name, size_t count) {
      if (random() % 4 == 0) return;
      merge_layers(name, 1);
      CHECK(find_serving(name, 1).overlay->layers.size() <= 12);
      check(name, count);
    };
    for (RowVersion number = kExported + 1; number < kExported + 120; ++number) {
      const auto first = static_cast<int64_t>(random() % kRows);
      const auto last = first + static_cast<int64_t>(random() % (kRows - first + 1));
      cuts.push_back({{version.cut(first, last, number), number}, first, last});
      // At times the store goes back: cuts that were folded are laid again.
      const size_t back = random() % 4 == 0 ? random() % 4 : 0;
      const size_t from = folded - std::min(folded, back);
      const auto turns = random() % 2 == 0 ? std::array{"m", "other"} : std::array{"other", "m"};
      for (const char* const name : turns) {
        show_serving(name, 1, number, layers(from, cuts.size()));
        check(name, cuts.size());
        check(turns[1], cuts.size() - (name == turns[0]));
        merge(name, cuts.size());
      }
      if (random() % 20 != 0) continue;
      const size_t before = folded;
      folded += random() % (cuts.size() - folded + 1);
      for (size_t i = before; i < folded; ++i) {
        version.put(cuts[i].first, cuts[i].last, cuts[i].file.version);
      }
      for (const char* const name : turns) {
        show_serving(name, 1, number, layers(folded, cuts.size()));
        check(name, cuts.size());
        merge(name, cuts.size());
      }
    }
    CHECK(most_layers > 8);
  }
}

TEST_CASE("registry: lookups, merges and cuts go on side by side") {
  const Version version;
  share_serving("m", 1, "other");
  std::atomic<bool> ended{false};
  std::atomic<int> wrong{0}, looked{0};
  const auto look = [&](const char* name) {
    while (!ended) {
      const Served by = find_serving(name, 1);
      for (int64_t key = 0; key < kRows; ++key) {
        wrong += served(by, key) != row(key, by.overlay->version);
      }
      ++looked;
    }
  };
  const auto merge = [&] {
    while (!ended) {
      merge_layers("m", 1);
      merge_layers("other", 1);
    }
  };
  std::thread threads[] = {std::thread(look, "m"), std::thread(look, "other"), std::thread(merge)};
  std::vector<LayerFile> files;
  for (RowVersion number = kExported + 1; number < kExported + 80; ++number) {
    files.insert(files.begin(), {version.cut(0, kRows, number), number});
    if (number % 20 == 0) {  // all but the newest are folded
      for (size_t i = files.size(); i-- > 1;) version.put(0, kRows, files[i].version);
      files.resize(1);
    }
    for (const char* const name : {"other", "m"}) show_serving(name, 1, number, files);
  }
  while (looked < 50) std::this_thread::yield();
  ended = true;
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  merge_layers("m", 1);
  CHECK(find_serving("m", 1).overlay->layers.size() <= 8);
}

TEST_CASE("registry: a merged layer is not used for another cut of the same number") {
  const Version version;
  std::vector<LayerFile> files;
  for (RowVersion number = 4; number < 20; ++number) {
    files.insert(files.begin(), {version.cut(0, kRows, number), number});
  }
  show_serving("m", 1, 19, files);
  merge_layers("m", 1);
  CHECK(find_serving("m", 1).overlay->layers.size() == 5);
  // Another file, and with it the newest ones, which nothing newer covers.
  const std::string other = version.directory / "other";
  Blocks({table()}, 10).add(0, 0, 5).layer(other);
  files.erase(files.begin(), files.begin() + 9);
  REQUIRE(files[0].version == 10);
  files[0].path = other;
  show_serving("m", 1, 20, files);
  CHECK(served("m", 2) == row(2, 10));
  CHECK(served("m", 20) == row(20, 9));
  CHECK(error_code([] { merge_layers("another", 1); }) == Code::kNotFound);
}

TEST_CASE("registry: a merged layer is not used when one of its older cuts is another one now") {
  const Version version;
  std::vector<LayerFile> files;
  for (RowVersion number = 4; number < 20; ++number) {
    const auto key = static_cast<int64_t>(number);
    files.insert(files.begin(), {version.cut(key, key + 1, number), number});
  }
  show_serving("m", 1, 19, files);
  merge_layers("m", 1);
  CHECK(find_serving("m", 1).overlay->layers.size() == 5);
  CHECK(served("m", 9) == row(9, 9));
  const std::string other = version.directory / "other";
  Blocks({table()}, 9).add(0, 30, 31).layer(other);
  REQUIRE(files[10].version == 9);
  files[10].path = other;
  show_serving("m", 1, 19, files);
  // Its cached row was of the lost cut: the control process has the cache forgotten, too.
  find_serving("m", 1).tables->forget_cached();
  CHECK(served("m", 9) == row(9, kExported));
  CHECK(served("m", 30) == row(30, 9));
  CHECK(served("m", 10) == row(10, 10));
  CHECK(served("m", 4) == row(4, 4));
}

TEST_CASE("registry: an attached manifest has few layers at once") {
  const Version version;
  std::vector<LayerFile> files;
  for (RowVersion number = 4; number < 40; ++number) {
    files.insert(files.begin(), {version.cut(0, static_cast<int64_t>(number), number), number});
  }
  attach_serving(version.manifest, ServingOptions());
  show_attached(version.manifest, 39, files);
  CHECK(open_serving(version.manifest).overlay->layers.size() <= 8);
  CHECK(served(open_serving(version.manifest), 30) == row(30, 39));
  CHECK(served(open_serving(version.manifest), 39) == row(39, kExported));
  detach_serving(version.manifest);
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
