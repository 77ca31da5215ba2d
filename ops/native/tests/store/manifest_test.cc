#include "core/store/manifest.h"

#include <doctest/doctest.h>

#include <fstream>

#include "tests/error_code.h"
#include "tests/temporary_directory.h"

namespace hotrow {
namespace {

const std::string kGood =
    R"({"generation": "g1", "store": "file:rows", "more": [1, {"a": null}], "tables": [)"
    R"({"name": "user", "dim": 16, "default_value": 0.5, "rows": 7, "dtype": "float32"},)"
    R"({"name": "a/b", "dim": 1, "default_value": 0, "rows": 0}]})";

Manifest read(const std::string& text) {
  const TemporaryDirectory directory;
  const std::string path = directory / "manifest.json";
  std::ofstream(path) << text;
  return read_manifest(path);
}

std::string replaced(const std::string& from, const std::string& to) {
  std::string text = kGood;
  const size_t at = text.find(from);
  REQUIRE(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

}  // namespace

TEST_CASE("manifest: what the lookup needs is read") {
  const Manifest manifest = read(kGood);
  CHECK(manifest.generation == "g1");
  CHECK(manifest.store == "file:rows");
  REQUIRE(manifest.tables.size() == 2);
  CHECK(manifest.tables[0].name == "user");
  CHECK(manifest.tables[0].width == 16);
  CHECK(manifest.tables[0].default_value == 0.5f);
  CHECK(manifest.tables[0].rows == 7);
  CHECK(manifest.tables[1].name == "a/b");
}

TEST_CASE("manifest: a file cut anywhere is damaged, an absent one is not found") {
  for (size_t size = 0; size < kGood.size(); ++size) {
    REQUIRE(error_code([&] { read(kGood.substr(0, size)); }) == Code::kDataLoss);
  }
  const TemporaryDirectory directory;
  CHECK(error_code([&] { read_manifest(directory / "none.json"); }) == Code::kNotFound);
}

TEST_CASE("manifest: values of the wrong type or range are damaged") {
  for (const auto& [from, to] : std::initializer_list<std::pair<const char*, const char*>>{
           {"\"g1\"", "1"},
           {"\"tables\"", "\"table\""},
           {"\"dim\": 16", "\"dim\": -1"},
           {"\"dim\": 16", "\"dim\": 0"},
           {"\"dim\": 16", "\"dim\": 1.5"},
           {"\"dim\": 16", "\"dim\": 1e300"},
           {"\"dim\": 16", "\"dim\": 18446744073709551615"},
           {"\"dim\": 16", "\"dim\": \"16\""},
           {"\"rows\": 7", "\"rows\": -7"},
           {"\"rows\": 7", "\"rows\": null"},
           {"0.5", "\"0.5\""},
           {"[1, {", "[1, \xff{"},
           {"{\"name\": \"user\"", "7, {\"name\": \"user\""}}) {
    CAPTURE(std::string(to));
    CHECK(error_code([&, f = from, t = to] { read(replaced(f, t)); }) == Code::kDataLoss);
  }
  CHECK(error_code([] { read(std::string(100000, '[')); }) == Code::kDataLoss);
}

TEST_CASE("manifest: a relative store starts at the version directory") {
  CHECK(store_directory("file:///x/rows", "/m/1/assets/manifest.json") == "/x/rows");
  CHECK(store_directory("file:rows", "/m/1/assets/manifest.json") == "/m/1/rows");
  CHECK(store_directory("file:../rows", "/m/1/assets/manifest.json") == "/m/rows");
  try {
    store_directory("redis://h:1", "/m/./1/assets/manifest.json");
    FAIL("opened");
  } catch (const Error& error) {
    CHECK(error.code() == Code::kFailedPrecondition);
    CHECK(std::string(error.what()).find("with hotrow.bind(\"/m/1\")") != std::string::npos);
  }
}

}  // namespace hotrow
