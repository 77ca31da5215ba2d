#include "core/serving/hot_list.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/base/status.h"

namespace hotrow {
namespace {

constexpr char kListMagic[8] = {'H', 'R', 'H', 'O', 'T', '0', '0', '1'};
constexpr size_t kListHead = sizeof(kListMagic) + sizeof(uint64_t);
constexpr size_t kEntry = sizeof(int64_t) + sizeof(uint32_t);

}  // namespace

HotList read_hot_list(const std::string& path, size_t tables) {
  std::error_code missing;
  const uintmax_t bytes = std::filesystem::file_size(path, missing);
  if (missing) return {};
  std::ifstream file(path, std::ios::binary);
  char magic[sizeof(kListMagic)];
  uint64_t count = 0;
  file.read(magic, sizeof(magic));
  file.read(reinterpret_cast<char*>(&count), sizeof(count));
  if (!file || std::memcmp(magic, kListMagic, sizeof(magic)) != 0 || bytes < kListHead ||
      count != (bytes - kListHead) / kEntry || (bytes - kListHead) % kEntry != 0) {
    fail(Code::kDataLoss, "%s is damaged or of another format", path.c_str());
  }
  HotList list;
  list.keys.resize(count);
  list.tables.resize(count);
  file.read(reinterpret_cast<char*>(list.keys.data()),
            static_cast<std::streamsize>(count * sizeof(int64_t)));
  file.read(reinterpret_cast<char*>(list.tables.data()),
            static_cast<std::streamsize>(count * sizeof(uint32_t)));
  const bool legal = std::all_of(list.tables.begin(), list.tables.end(),
                                 [&](uint32_t table) { return table < tables; });
  if (!file || !legal) fail(Code::kDataLoss, "%s is damaged", path.c_str());
  return list;
}

}  // namespace hotrow
