// Files of records: when the next file begins, and that failures leave whole records.
#include "request_log/log_file.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

namespace hotrow_server {
namespace {

namespace fs = std::filesystem;

constexpr LogFileLimits kWide{1 << 20, 3600};

class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "log_file-XXXXXX").string();
    REQUIRE(mkdtemp(name.data()) != nullptr);
    path_ = name;
  }
  ~Folder() { fs::remove_all(path_); }
  std::string prefix() const { return (path_ / "log").string(); }
  // In the order of their names.
  std::vector<std::string> contents() const {
    std::vector<fs::path> paths(fs::directory_iterator(path_), fs::directory_iterator{});
    std::sort(paths.begin(), paths.end());
    std::vector<std::string> all;
    for (const fs::path& path : paths) {
      std::ifstream in(path, std::ios::binary);
      all.emplace_back(std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>());
    }
    return all;
  }

 private:
  fs::path path_;
};

using Contents = std::vector<std::string>;

TEST_CASE("records follow each other in one file") {
  const Folder folder;
  LogFile file(folder.prefix());
  CHECK(file.append("one", 1, kWide));
  CHECK(file.append("two", 1, kWide));
  CHECK(folder.contents() == Contents{"onetwo"});
}

TEST_CASE("a file that would be too long, or is too old, is followed by another one") {
  const Folder folder;
  LogFile file(folder.prefix());
  for (const char* record : {"aaaa", "bbbb", "cccc"}) CHECK(file.append(record, 1, {8, 3600}));
  CHECK(folder.contents() == Contents{"aaaabbbb", "cccc"});
  // Longer than a file may be: it gets its own file.
  CHECK(file.append("0123456789", 1, {8, 3600}));
  CHECK(folder.contents() == Contents{"aaaabbbb", "cccc", "0123456789"});
  CHECK(file.append("d", 1, {100, 0}));
  CHECK(folder.contents().size() == 4);
}

TEST_CASE("no file is written over") {
  const Folder folder;
  for (const char* record : {"first", "second", "third"}) {
    LogFile file(folder.prefix());
    CHECK(file.append(record, 1, kWide));
  }
  CHECK(folder.contents() == Contents{"first", "second", "third"});
}

TEST_CASE("a removed file is followed by another one") {
  const Folder folder;
  LogFile file(folder.prefix());
  CHECK(file.append("gone", 1, kWide));
  for (const auto& entry : fs::directory_iterator(fs::path(folder.prefix()).parent_path())) {
    fs::remove(entry.path());
  }
  CHECK(file.append("stays", 1, kWide));
  CHECK(folder.contents() == Contents{"stays"});
}

TEST_CASE("records without a folder are lost") {
  const Folder folder;
  LogFile file(folder.prefix() + "/nowhere/log");
  CHECK(!file.append("lost", 1, kWide));
  CHECK(!file.append("lost, too", 1, kWide));
  CHECK(folder.contents().empty());
}

}  // namespace
}  // namespace hotrow_server
