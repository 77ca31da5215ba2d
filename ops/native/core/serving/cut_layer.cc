#include "core/serving/cut_layer.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>

#include "core/base/fingerprint.h"
#include "core/base/status.h"
#include "core/store/store_layout.h"

namespace hotrow {
namespace {

constexpr char kLayerMagic[] = "HRCB";
constexpr size_t kLayerHead = 40;
constexpr size_t kChecked = 16;  // bytes before the checksummed ones, except the table's number
constexpr size_t kTable = 4, kChecksum = 8, kVersion = 16, kCount = 28, kWidth = 32;
constexpr size_t kKeysAhead = 8;  // keys
constexpr size_t kUpdateRows = 1024;
// Slots of an index for each row, at least.
constexpr size_t kRoom = 2;

template <typename T>
T read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

std::vector<std::byte> content_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) fail(Code::kNotFound, "blocks of a cut, %s: %s", path.c_str(), std::strerror(errno));
  std::vector<std::byte> content(static_cast<size_t>(file.tellg()));
  file.seekg(0);
  file.read(reinterpret_cast<char*>(content.data()), static_cast<std::streamsize>(content.size()));
  if (!file) fail(Code::kDataLoss, "blocks of a cut, %s: it cannot be read", path.c_str());
  return content;
}

int64_t checksum_of(const std::byte* block, size_t bytes) {
  const int64_t ends[] = {0, static_cast<int64_t>(bytes - kChecked)};
  int64_t sum = 0;
  fingerprint64(reinterpret_cast<const char*>(block + kTable), kChecksum - kTable,
                reinterpret_cast<const char*>(block + kChecked), ends, 1, &sum);
  return sum;
}

}  // namespace

CutLayer::CutLayer(const std::string& path, RowVersion version,
                   const std::vector<StoredTable>& tables)
    : files_{{path, version}}, content_(content_of(path)), indexes_(tables.size()) {
  std::vector<size_t> rows(tables.size());
  for (size_t offset = 0; offset < content_.size();) {
    const Block block = read_block(path, offset, tables);
    blocks_.push_back(block);
    rows[block.table] += block.count;
    offset = block.first + block.count * block.record_bytes;
  }
  for (size_t t = 0; t < tables.size(); ++t) reserve(t, rows[t]);
  for (const Block& block : blocks_) {
    for (size_t i = 0; i < block.count; ++i) {
      const size_t record = block.first + i * block.record_bytes;
      const auto key = read<int64_t>(&content_[record]);
      if ((read<RowVersion>(&content_[record + sizeof(key)]) & ~kTombstone) != version) {
        fail(Code::kDataLoss, "blocks of a cut, %s: a row of another cut", path.c_str());
      }
      // For a key that occurs twice, the first row stays, as in the store.
      add(block.table, key, record);
    }
  }
}

CutLayer::CutLayer(const std::vector<std::shared_ptr<const CutLayer>>& layers,
                   const std::vector<StoredTable>& tables)
    : indexes_(tables.size()) {
  std::vector<size_t> most(tables.size());  // rows, duplicates too
  size_t bytes = kLayerHead;                // no record is at 0
  for (const auto& layer : layers) {
    files_.insert(files_.end(), layer->files_.begin(), layer->files_.end());
    for (const Block& block : layer->blocks_) {
      most[block.table] += block.count;
      bytes += block.count * block.record_bytes;
    }
  }
  content_.reserve(bytes);
  content_.resize(kLayerHead);
  for (size_t t = 0; t < tables.size(); ++t) {
    if (most[t] == 0) continue;
    reserve(t, most[t]);
    Block all{t, content_.size(), 0, kRecordHead + tables[t].row_bytes()};
    for (const auto& layer : layers) {
      for (const Block& block : layer->blocks_) {
        if (block.table != t) continue;
        for (size_t i = 0; i < block.count; ++i) {
          const std::byte* const from = &layer->content_[block.first + i * block.record_bytes];
          if (!add(t, read<int64_t>(from), content_.size())) continue;
          content_.insert(content_.end(), from, from + block.record_bytes);
          ++all.count;
        }
      }
    }
    blocks_.push_back(all);
    if (most[t] < 2 * all.count) continue;
    // Many rows replaced others: a smaller index suffices.
    indexes_[t] = {};
    rows_ -= all.count;
    reserve(t, all.count);
    for (size_t i = 0; i < all.count; ++i) {
      const size_t record = all.first + i * all.record_bytes;
      add(t, read<int64_t>(&content_[record]), record);
    }
  }
  content_.shrink_to_fit();
}

size_t CutLayer::bytes() const {
  size_t bytes = content_.capacity();
  for (const Index& index : indexes_) bytes += index.slots.capacity() * sizeof(Slot);
  return bytes;
}

void CutLayer::reserve(size_t table, size_t rows) {
  if (rows == 0) return;
  size_t slots = 1;
  while (slots < kRoom * rows) slots *= 2;
  indexes_[table].slots.resize(slots);
  indexes_[table].mask = slots - 1;
}

bool CutLayer::add(size_t table, int64_t key, uint64_t record) {
  Index& index = indexes_[table];
  size_t at = index.home(key);
  while (index.slots[at].record != 0 && index.slots[at].key != key) at = (at + 1) & index.mask;
  if (index.slots[at].record != 0) return false;
  index.slots[at] = {key, record};
  ++rows_;
  return true;
}

CutLayer::Block CutLayer::read_block(const std::string& path, size_t offset,
                                     const std::vector<StoredTable>& tables) const {
  const auto damaged = [&](const char* how) {
    fail(Code::kDataLoss, "blocks of a cut, %s: the block at byte %zu %s", path.c_str(), offset,
         how);
  };
  const size_t rest = content_.size() - offset;
  const std::byte* const head = &content_[offset];
  if (rest < kLayerHead || std::memcmp(head, kLayerMagic, 4) != 0) damaged("is none");
  Block block;
  block.table = read<uint32_t>(head + kTable);
  block.count = read<uint32_t>(head + kCount);
  if (block.table >= tables.size()) damaged("is of no table");
  const size_t width = read<uint32_t>(head + kWidth);
  if (width != tables[block.table].row_bytes()) damaged("has rows of another size");
  block.record_bytes = kRecordHead + width;
  block.first = offset + kLayerHead;
  if (block.count > (rest - kLayerHead) / block.record_bytes) damaged("is cut");
  if (checksum_of(head, kLayerHead + block.count * block.record_bytes) !=
      read<int64_t>(head + kChecksum)) {
    damaged("is damaged");
  }
  if (read<RowVersion>(head + kVersion) != version()) damaged("is of another cut");
  return block;
}

CutLayer::Row CutLayer::row_of(uint64_t record) const {
  const std::byte* const at = &content_[record];
  const bool gone = (read<RowVersion>(at + sizeof(int64_t)) & kTombstone) != 0;
  return {true, gone ? nullptr : at + kRecordHead};
}

void CutLayer::visit(const Visit& visit) const {
  std::vector<int64_t> keys(kUpdateRows);
  std::vector<RowVersion> versions(kUpdateRows);
  std::vector<std::byte> rows;
  for (const Block& block : blocks_) {
    const size_t row_bytes = block.record_bytes - kRecordHead;
    rows.resize(kUpdateRows * row_bytes);
    for (size_t begin = 0; begin < block.count; begin += kUpdateRows) {
      const size_t count = std::min(kUpdateRows, block.count - begin);
      for (size_t i = 0; i < count; ++i) {
        const std::byte* const at = &content_[block.first + (begin + i) * block.record_bytes];
        keys[i] = read<int64_t>(at);
        versions[i] = read<RowVersion>(at + sizeof(int64_t));
        std::memcpy(&rows[i * row_bytes], at + kRecordHead, row_bytes);
      }
      visit(block.table, keys.data(), count, rows.data(), versions.data());
    }
  }
}

CutLayer::Row Overlay::find(size_t table, int64_t key) const {
  for (const auto& layer : layers) {
    if (const CutLayer::Row row = layer->find(table, key); row.known) return row;
  }
  return {};
}

bool Overlay::refuse_new(const ReadRequest& read) const {
  bool refused = false;
  if (version == 0) return refused;
  for (size_t i = 0; i < read.count; ++i) {
    if (read.states[i] == ReadState::kFailed || (read.versions[i] & ~kTombstone) <= version) {
      continue;
    }
    read.states[i] = ReadState::kFailed;
    refused = true;
  }
  return refused;
}

void Overlay::lay_over(const std::vector<StoredTable>& tables, const HotRows::Probe* probes,
                       size_t count, std::vector<HotRows::Miss>* misses,
                       const Counted& counted) const {
  size_t seen = 0, kept = 0;
  for (size_t p = 0; p < count; ++p) {
    const HotRows::Probe& probe = probes[p];
    const StoredTable& table = tables[probe.table];
    size_t laid = 0;
    for (size_t i = 0; i < probe.count; ++i) {
      if (i + kKeysAhead < probe.count) {
        for (const auto& layer : layers) layer->approach(probe.table, probe.keys[i + kKeysAhead]);
      }
      const CutLayer::Row row = find(probe.table, probe.keys[i]);
      const bool missed =
          seen < misses->size() && (*misses)[seen].probe == p && (*misses)[seen].position == i;
      if (row.known) {
        float* const to = probe.rows + i * table.width;
        if (row.stored == nullptr) {
          std::fill_n(to, table.width, table.default_value);
        } else {
          decode_row(table.type, row.stored, table.width, to);
        }
        ++laid;
      } else if (missed) {
        (*misses)[kept++] = (*misses)[seen];
      }
      seen += missed;
    }
    if (laid > 0) counted(probe.table, laid);
  }
  misses->resize(kept);
}

}  // namespace hotrow
